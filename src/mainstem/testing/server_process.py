"""A server in its own process, which tests and benchmarks can stop, kill and restart.

Guarantees: the process leads its own process group, which has ended when the block is left; a
temporary folder holds the server's output (and its data, unless a folder is given) until then.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 35.0
LOG_TAIL_LINES = 40

Ready = TypeVar("Ready")


class ServerFailed(RuntimeError):
    """The process did not become ready, or did not stop when asked."""


class ServerProcess(ABC):
    """One process at a time, with its output and data.

    Args:
        prefix: prefix of the temporary folder's name.
        data_dir: where the server keeps its data; inside the temporary folder if None.
    """

    def __init__(self, prefix: str, data_dir: Path | None) -> None:
        self._scratch = Path(tempfile.mkdtemp(prefix=prefix))
        self.data_dir = data_dir if data_dir is not None else self._scratch / "data"
        self.log_path = self._scratch / "server.log"
        self.kafka = "127.0.0.1:0"
        self.ready_s = 0.0
        self._launched_s = 0.0
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
        """The process id of the running server."""
        return self._running().pid

    @property
    def returncode(self) -> int | None:
        """The exit status of the last process; None while it runs."""
        return self._process.poll() if self._process is not None else None

    @abstractmethod
    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the process and wait until it is ready."""

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop the server with SIGTERM; returns its exit status."""
        self._running().terminate()
        return self.wait(timeout_s=timeout_s)

    def wait(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Wait until the process has ended by itself; returns its exit status."""
        assert self._process is not None, "never started"
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerFailed(f"still running after {timeout_s} s\n{self.log_tail()}") from None

    def kill9(self) -> None:
        """Kill the whole process group with SIGKILL."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        """Restart with the same data and addresses; stops the server first if it runs."""
        if self._process is not None and self._process.poll() is None:
            self.stop()
        self.start()

    def close(self) -> None:
        """Kill running processes and remove the temporary folder."""
        self.kill9()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def log_text(self) -> str:
        """The server's output since the first start."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_text(errors="replace")

    def log_tail(self) -> str:
        """The last lines of the server's output, for failure messages."""
        return "\n".join(self.log_text().splitlines()[-LOG_TAIL_LINES:])

    def _launch(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start the process; returns the position in the log where its output starts."""
        assert self._process is None or self._process.poll() is not None, "already running"
        self._launched_s = time.monotonic()
        with self.log_path.open("ab") as log:
            seen = log.tell()
            # The subclass builds the command from its own arguments.
            self._process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
                start_new_session=True,
            )
        return seen

    def _await(
        self, ready: Callable[[], Ready | None], *, timeout_s: float, poll_s: float
    ) -> Ready:
        """Poll ``ready`` until it returns a value; kills the process on failure."""
        assert self._process is not None, "never started"
        while time.monotonic() - self._launched_s < timeout_s:
            if (found := ready()) is not None:
                self.ready_s = time.monotonic() - self._launched_s
                return found
            if (status := self._process.poll()) is not None:
                raise ServerFailed(f"the process ended with status {status}\n{self.log_tail()}")
            time.sleep(poll_s)
        self.kill9()
        raise ServerFailed(f"the server was not ready in time\n{self.log_tail()}")

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise ServerFailed(f"the server is not running\n{self.log_tail()}")
        return self._process
