"""A node as a child process of this one, whose READY line is waited for."""

import json
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Final

from mainstem.model.errors import ErrorCode, Unavailable

READY_MARK: Final = "READY "
READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 40.0


class NodeProcess:
    """One node as a process whose output is passed on."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self.number = number
        self.addresses: dict[str, object] = {}
        self._ready = threading.Event()
        # The command is our own interpreter with arguments of this module.
        self._process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_ready(self) -> None:
        """Return once it serves.

        Raises:
            Unavailable: it ended, or takes too long.
        """
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._ready.wait(0.05):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(
                    ErrorCode.WRITER_UNAVAILABLE,
                    f"node {self.number} did not start",
                    remedy="see its log lines above for the reason",
                )

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Ask it to stop."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit status, killed if it does not end."""
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None, "output was piped when it was started"
        for line in self._process.stdout:
            if line.startswith(READY_MARK):
                self.addresses = json.loads(line.removeprefix(READY_MARK))
                self._ready.set()
