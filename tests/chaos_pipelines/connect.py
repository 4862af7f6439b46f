"""A connect process under test, with its Java and its Python workers: started, killed, awaited."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from tests.chaos_pipelines.points import FOLDER_VARIABLE

ROOT = Path(__file__).parents[2]
LOG_SHOWN = 4_000
POLL_S = 0.05


class Connect:
    """``mainstem pipeline run`` in a session of its own.

    Args:
        file: the pipeline file.
        folder: holds ``state``, ``points`` and the log; what Spark leaves goes to ``tmp``.
        once: end when everything that is there has arrived.
    """

    def __init__(self, file: Path, folder: Path, *, once: bool = False) -> None:
        self._log = folder / "connect.log"
        (folder / "tmp").mkdir(exist_ok=True)
        environment = os.environ | {
            FOLDER_VARIABLE: str(folder / "points"),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "TMPDIR": str(folder / "tmp"),
        }
        command = [sys.executable, "-m", "tests.chaos_pipelines.frail_job", str(file)]
        with self._log.open("ab") as out:
            self._said_from = out.tell()
            self._process = subprocess.Popen(
                [*command, "--once"] if once else command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    def until(self, condition: Callable[[], object], *, patience_s: float, what: str) -> None:
        """Wait while it lives."""
        deadline = time.monotonic() + patience_s
        while not condition():
            assert self._process.poll() is None, f"it ended: {self.log_tail()}"
            assert time.monotonic() < deadline, f"waited too long for {what}: {self.log_tail()}"
            time.sleep(POLL_S)

    def kill9(self) -> None:
        """Everything: the group first, then workers, which Spark gives groups of their own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        while members := list(self._members()):
            for member in members:
                with contextlib.suppress(psutil.NoSuchProcess):
                    member.kill()
            psutil.wait_procs(members, timeout=5)
        self._process.wait()

    def kill_java(self, *, patience_s: float) -> int:
        """Only Java; the process has to notice by itself. How it ended is returned."""
        [java] = [each for each, name in self._members().items() if name == "java"]
        java.kill()
        return self.wait(patience_s=patience_s)

    def wait(self, *, patience_s: float) -> int:
        """Its exit status, when it ends by itself."""
        try:
            return self._process.wait(patience_s)
        finally:
            self.kill9()

    def said(self) -> str:
        """All that it said, and its Java and its workers."""
        return self._log.read_bytes()[self._said_from :].decode(errors="replace")

    def log_tail(self) -> str:
        """The last of what it said."""
        return self.said()[-LOG_SHOWN:]

    def _members(self) -> dict[psutil.Process, str]:
        """The living processes of its session and their names."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                is_ours = os.getsid(process.pid) == self._process.pid
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found[process] = process.name()
        return found
