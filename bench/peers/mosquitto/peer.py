"""Mosquitto as a peer: Debian's broker, which keeps messages in memory, in a folder of its own."""

import contextlib
import shutil
import socket
from pathlib import Path

from mainstem.testing.ports import free_port
from mainstem.testing.server_process import ServerProcess

COMMAND = "/usr/sbin/mosquitto"
READY_TIMEOUT_S = 30.0
POLL_S = 0.05
# Nothing is to be dropped: what a subscriber has not taken yet waits, as it does in a log.
SETTINGS = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_inflight_messages 1000
max_queued_messages 0
user root
"""


def is_installed() -> bool:
    """Whether Debian's package is there."""
    return shutil.which(COMMAND) is not None


class Mosquitto(ServerProcess):
    """Mosquitto under the same loads as a node."""

    def __init__(self, data_dir: Path | None = None) -> None:
        super().__init__("mosquitto-peer-", data_dir)
        self._port = free_port()
        self.mqtt = f"127.0.0.1:{self._port}"

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the broker and wait until it answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        settings = self.data_dir / "mosquitto.conf"
        settings.write_text(SETTINGS.format(port=self._port))
        self._launch([COMMAND, "-c", str(settings)], {})
        self._await(lambda: self._answers() or None, timeout_s=timeout_s, poll_s=POLL_S)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False
