"""A real node in its own process, to be talked to, stopped, killed and started again.

Promises: the process leads its own group and the whole group is gone when the block is left; a
restart serves the same data under the same addresses; what the node printed is kept in a file.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

READY_MARK = "READY "
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 35.0
POLL_S = 0.005
LOG_TAIL_LINES = 40


class NodeFailed(RuntimeError):
    """The process did not become ready, or did not stop when asked."""


class LocalNode:
    """A node under test.

    Args:
        data_dir: where the node keeps its data; a temporary folder, removed at the end, if None.
        arguments: further command line arguments of the node.
        environment: variables set on top of this process's environment.
        python: the interpreter that runs the node.
    """

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix="mainstem-node-"))
        self.data_dir = data_dir if data_dir is not None else self._scratch / "data"
        self.log_path = self._scratch / "node.log"
        self.arguments = tuple(arguments)
        self.environment = dict(environment or {})
        self.python = python
        self.kafka = "127.0.0.1:0"
        self.http = "127.0.0.1:0"
        self.announced: dict[str, object] = {}  # what the node printed when it was ready
        self.ready_s = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
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

    @property
    def pid(self) -> int:
        """The process id of the running node."""
        return self._running().pid

    @property
    def returncode(self) -> int | None:
        """How the last process ended; None while it runs."""
        return self._process.poll() if self._process is not None else None

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the process and wait until it says that it is ready."""
        assert self._process is None or self._process.poll() is not None, "already running"
        started = time.monotonic()
        with self.log_path.open("ab") as log:
            seen = log.tell()
            # The command is made of this interpreter and the caller's own arguments.
            self._process = subprocess.Popen(  # noqa: S603
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self.environment,
                start_new_session=True,
            )
        self.announced = self._await_ready(seen, started + timeout_s)
        self.ready_s = time.monotonic() - started
        self.kafka = str(self.announced["kafka"])
        self.http = str(self.announced.get("http", self.http))

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ask the node to stop as an operator would; its exit status is returned."""
        process = self._running()
        process.terminate()
        return self.wait(timeout_s=timeout_s)

    def wait(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process has ended by itself; its exit status is returned."""
        assert self._process is not None, "never started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NodeFailed(f"still running after {timeout_s} s\n{self.log_tail()}") from None

    def kill9(self) -> None:
        """End the whole process group at once, without a chance to write anything more."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Start again on the same data and the same addresses, stopping first if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        self.start()

    def close(self) -> None:
        """Kill what still runs and remove the temporary folder."""
        self.kill9()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def log_text(self) -> str:
        """Everything the node printed since the first start."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_text(errors="replace")

    def log_tail(self) -> str:
        """The last lines the node printed, for a failure's message."""
        return "\n".join(self.log_text().splitlines()[-LOG_TAIL_LINES:])

    def _command(self) -> list[str]:
        return [
            self.python,
            "-m",
            "mainstem.node",
            "--data-dir",
            str(self.data_dir),
            "--kafka-port",
            self.kafka.rpartition(":")[2],
            "--http-port",
            self.http.rpartition(":")[2],
            *self.arguments,
        ]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise NodeFailed(f"the node is not running\n{self.log_tail()}")
        return self._process

    def _await_ready(self, seen: int, deadline: float) -> dict[str, object]:
        assert self._process is not None
        while time.monotonic() < deadline:
            with self.log_path.open("rb") as log:
                log.seek(seen)
                for line in log:
                    text = line.decode(errors="replace")
                    if text.startswith(READY_MARK) and text.endswith("\n"):
                        addresses: dict[str, object] = json.loads(text.removeprefix(READY_MARK))
                        return addresses
            if (status := self._process.poll()) is not None:
                raise NodeFailed(f"the node ended with status {status}\n{self.log_tail()}")
            time.sleep(POLL_S)
        self.kill9()
        raise NodeFailed(f"the node was not ready in time\n{self.log_tail()}")
