"""A real node in its own process, which tests can stop, kill and restart.

Guarantees: those of ``server_process``; a restart serves the same data under the same addresses.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from mainstem.testing.ports import free_ports
from mainstem.testing.server_process import READY_TIMEOUT_S, ServerProcess

READY_MARK = "READY "
POLL_S = 0.005


class LocalNode(ServerProcess):
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
        super().__init__("mainstem-node-", data_dir)
        self.arguments = tuple(arguments)
        self.environment = dict(environment or {})
        self.python = python
        self.kafka, self.http, self.amqp, self.mqtt, self.native = (
            f"127.0.0.1:{port}" for port in free_ports(5)
        )
        self.announced: dict[str, object] = {}  # what the node printed when it was ready

    def start(self, *, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Start the process and wait until it reports that it is ready."""
        seen = self._launch(self._command(), self.environment)
        self.announced = self._await(
            lambda: self._announcement(seen), timeout_s=timeout_s, poll_s=POLL_S
        )
        self.kafka = str(self.announced["kafka"])
        self.http = str(self.announced.get("http", self.http))
        self.amqp = str(self.announced.get("amqp", self.amqp))
        self.mqtt = str(self.announced.get("mqtt", self.mqtt))
        self.native = str(self.announced.get("native", self.native))

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
            "--set",
            f"amqp.port={self.amqp.rpartition(':')[2]}",
            "--set",
            f"mqtt.port={self.mqtt.rpartition(':')[2]}",
            "--set",
            f"native.port={self.native.rpartition(':')[2]}",
            *self.arguments,
        ]

    def _announcement(self, seen: int) -> dict[str, object] | None:
        with self.log_path.open("rb") as log:
            log.seek(seen)
            for line in log:
                text = line.decode(errors="replace")
                if text.startswith(READY_MARK) and text.endswith("\n"):
                    addresses: dict[str, object] = json.loads(text.removeprefix(READY_MARK))
                    return addresses
        return None
