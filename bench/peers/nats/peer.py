"""NATS with JetStream as a peer: Debian's server with its own settings, in a folder of its own."""

import contextlib
import shutil
import socket
from pathlib import Path

from mainstem.testing.ports import free_port
from mainstem.testing.server_process import ServerProcess

COMMAND = "/usr/sbin/nats-server"
READY_TIMEOUT_S = 30.0
POLL_S = 0.05


def is_installed() -> bool:
    """Whether Debian's package is there."""
    return shutil.which(COMMAND) is not None


class Nats(ServerProcess):
    """NATS under the same loads as a node."""

    def __init__(self, data_dir: Path | None = None) -> None:
        super().__init__("nats-peer-", data_dir)
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the server and wait until it answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        command = [COMMAND, "-a", "127.0.0.1", "-p", str(self._port)]
        self._launch([*command, "-js", "-sd", str(self.data_dir)], {})
        self._await(lambda: self._answers() or None, timeout_s=timeout_s, poll_s=POLL_S)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False
