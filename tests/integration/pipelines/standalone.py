"""A Spark cluster on loopback: a master and workers, each in a process of its own.

Promises: every process leads a group of its own, and all groups, executors included, are gone when
the block is left; nothing listens on another address than 127.0.0.1.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from mainstem.pipelines.spark.java import find_java_home

READY_TIMEOUT_S = 60.0
POLL_S = 0.05
CORES_OF_A_WORKER = 1
MEMORY_OF_A_WORKER = "640m"
# What runs for seconds is better off without the compiler that pays after minutes.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class StandaloneSpark:
    """A master and some workers.

    Args:
        folder: where logs and the executors' folders go.
        workers: how many worker processes.
    """

    def __init__(self, folder: Path, *, workers: int) -> None:
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> Self:
        try:
            where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            log = self._launch("master", "org.apache.spark.deploy.master.Master", *where)
            self.master = self._said(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
            size = ("--cores", str(CORES_OF_A_WORKER), "--memory", MEMORY_OF_A_WORKER)
            logs = [
                self._launch(
                    f"worker-{number}",
                    "org.apache.spark.deploy.worker.Worker",
                    *(*where, *size, "--work-dir", str(self.work_dir(number)), self.master),
                )
                for number in range(self._workers)
            ]
            for each in logs:
                self._said(each, r"(Successfully registered with master)")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def work_dir(self, worker: int) -> Path:
        """Where a worker keeps the folders of its executors."""
        return self._folder / f"work-{worker}"

    def close(self) -> None:
        """Kill everything: an executor is in the group of its worker."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def log_tails(self) -> str:
        """The last lines of every process, for a failure's message."""
        files = [*self._folder.glob("*.log"), *self._folder.glob("work-*/app-*/*/stderr")]
        return "\n".join(f"== {file}\n{file.read_text()[-2_000:]}" for file in sorted(files))

    def _launch(self, name: str, main: str, *arguments: str) -> Path:
        found = find_spec("pyspark")
        assert found is not None
        assert found.origin is not None
        home = Path(found.origin).parent
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", main, *arguments],
                env=os.environ
                | {
                    "JAVA_HOME": str(find_java_home(os.environ)),
                    "SPARK_HOME": str(home),
                    "SPARK_LOCAL_IP": "127.0.0.1",
                    "SPARK_DAEMON_MEMORY": "256m",
                    "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
                    "PYSPARK_PYTHON": sys.executable,
                },
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        return log

    def _said(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (found := re.search(pattern, log.read_text())) is None:
            assert all(each.poll() is None for each in self._processes), self.log_tails()
            assert time.monotonic() < deadline, self.log_tails()
            time.sleep(POLL_S)
        return found[1]
