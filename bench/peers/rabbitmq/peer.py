"""RabbitMQ as a peer: Debian's server with its own settings, in a folder of its own.

Promises: those of ``server_process``. Erlang's port mapper, which RabbitMQ starts beside itself,
listens on a port of its own and is ended with it.
"""

import contextlib
import shutil
import subprocess
from pathlib import Path

import pika
from pika.exceptions import AMQPError

from mainstem.testing.ports import free_ports
from mainstem.testing.server_process import ServerProcess

COMMAND = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.2


def is_installed() -> bool:
    """Whether Debian's package is there."""
    return COMMAND.exists() and shutil.which("erl") is not None


class RabbitMq(ServerProcess):
    """RabbitMQ under the same loads as a node."""

    def __init__(self, data_dir: Path | None = None) -> None:
        super().__init__("rabbitmq-peer-", data_dir)
        self._port, distribution, self._mapper_port = free_ports(3)
        self.amqp = f"127.0.0.1:{self._port}"
        folder = self.data_dir
        self._environment = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        }

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the server and wait until it answers."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "rabbitmq.conf").write_text(
            "log.file = false\nlog.console.level = error\n"
        )
        (self.data_dir / "enabled_plugins").write_text("[].\n")
        self._launch([str(COMMAND)], self._environment)
        self._await(lambda: self._answers() or None, timeout_s=timeout_s, poll_s=POLL_S)

    def close(self) -> None:
        """End it, and the port mapper with it."""
        super().close()
        subprocess.run(
            ["epmd", "-port", str(self._mapper_port), "-kill"],
            capture_output=True,
            env={"PATH": "/usr/bin:/bin", "ERL_EPMD_RELAXED_COMMAND_CHECK": "1"},
            check=False,
        )

    def _answers(self) -> bool:
        with contextlib.suppress(AMQPError, OSError):
            pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self._port)).close()
            return True
        return False
