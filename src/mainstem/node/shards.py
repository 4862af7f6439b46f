"""``mainstemd --shards N``: one node per core of this machine, each a broker of its own.

    supervisor ──▶ shard 0 (creates the cluster, or joins one)
               ├─▶ shard 1 (joins shard 0)       each: its own folder, ports one apart
               └─▶ shard 2                       one machine: replicas go to others first

Clients get the addresses of all brokers and spread by partition, so that every core is used. HTTP
has one port shared by all shards, over which the system spreads connections, and one port per
shard after it. A shard that ends is restarted with a growing delay; when the supervisor is asked to
stop, all shards hand their streams over and stop.
"""

import json
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.node.config.settings import Config
from mainstem.node.process import NodeProcess
from mainstem.placement.persistence.identity_storage import write_atomically

SHARDS_MAX: Final = 64
EXIT_USAGE: Final = 2
PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 30.0
# A shard that ran for at least this long is restarted without a delay.
STEADY_S: Final = 60.0
PEER_PORT_DISTANCE: Final = 1_000
SECRET_NAME: Final = "cluster.secret"  # noqa: S105 - a file's name
# Where each protocol listens: the setting, and what READY calls its address.
PORTS: Final = {
    "kafka.port": "kafka",
    "http.port": "http",
    "cluster.peer_port": "peers",
    "amqp.port": "amqp",
    "mqtt.port": "mqtt",
    "native.port": "native",
}

_log = logging.getLogger(__name__)


def check_shards(count: int) -> int:
    """A number of shards that can be run.

    Raises:
        InvalidRequest: it cannot.
    """
    if not 1 <= count <= SHARDS_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG, f"{count} shards; 1 to {SHARDS_MAX} can be run",
            subject="--shards",
        )  # fmt: skip
    return count


class Shards:
    """The nodes of one machine, started and kept running.

    Args:
        config: from the command line; shard 0 has its ports, the others the next ones.
        count: how many nodes.
        arguments: the command line; every shard gets it with its own values appended.
    """

    def __init__(self, config: Config, count: int, arguments: Sequence[str]) -> None:
        self._config = config
        self._count = count
        self._arguments = list(arguments)
        self._folder = Path(config.node.data_dir)
        self._nodes: dict[int, NodeProcess] = {}
        self._known: dict[int, Mapping[str, object]] = {}
        self._started_s: dict[int, float] = {}
        self._pause_s: dict[int, float] = {}

    def start(self) -> list[Mapping[str, object]]:
        """Start all shards, the first one first; their addresses.

        Raises:
            Unavailable: one did not start.
        """
        self._share_secret()
        self._begin(0)
        self._await(0)
        for number in range(1, self._count):
            self._begin(number)
        for number in range(1, self._count):
            self._await(number)
        return [self._known[number] for number in range(self._count)]

    def watch(self, stopping: threading.Event) -> None:
        """Restart shards that end, until asked to stop."""
        due: dict[int, float] = {}
        while not stopping.wait(0.1):
            now = time.monotonic()
            for number, node in self._nodes.items():
                if number not in due and not node.is_running:
                    due[number] = now + self._next_pause_s(number, now)
                    _log.error("shard %d has ended and is started again", number)
            for number in [number for number, at_s in due.items() if at_s <= now]:
                del due[number]
                self._begin(number)

    def stop(self) -> int:
        """Stop all shards; the worst exit code."""
        for node in self._nodes.values():
            node.stop()
        return max((abs(node.wait()) for node in self._nodes.values()), default=0)

    def command_of(self, number: int) -> list[str]:
        """The command line of one shard."""
        values: dict[str, object] = {
            "node.id": self._config.node.id + number,
            "node.data_dir": self._folder / f"shard-{number}",
            "cluster.machine": self._config.cluster.machine or socket.gethostname(),
            "cluster.secret_file": self._config.cluster.secret_file or self._folder / SECRET_NAME,
            **{path: self._port(number, path) for path in PORTS},
            "http.shared_port": self._config.http.shared_port or self._config.http.port,
        }
        # A shard that has peers before it starts again finds them in its own folder.
        if not self._config.cluster.join and number and 0 in self._known:
            values["cluster.join"] = self._known[0]["peers"]
        sets = [word for path, value in values.items() for word in ("--set", f"{path}={value}")]
        return [sys.executable, "-m", "mainstem.node", *self._arguments, *sets]

    # Internals.

    def _begin(self, number: int) -> None:
        self._started_s[number] = time.monotonic()
        self._nodes[number] = NodeProcess(number, self.command_of(number))

    def _await(self, number: int) -> None:
        self._nodes[number].wait_ready()
        self._known[number] = self._nodes[number].addresses

    def _next_pause_s(self, number: int, now: float) -> float:
        if now - self._started_s[number] >= STEADY_S:
            self._pause_s.pop(number, None)
        pause_s = self._pause_s.get(number, PAUSE_S_MIN)
        self._pause_s[number] = min(PAUSE_S_MAX, 2 * pause_s)
        return pause_s

    def _port(self, number: int, path: str) -> int:
        """The port of a shard: the one it had, or the first shard's plus its number."""
        known = self._known.get(number, {}).get(PORTS[path])
        if isinstance(known, str):
            return int(known.rpartition(":")[2])
        section, _, name = path.partition(".")
        first: int | None = getattr(getattr(self._config, section), name)
        if first is None:  # nodes of one machine are always connected to each other
            first = self._config.kafka.port and self._config.kafka.port + PEER_PORT_DISTANCE
        # The first HTTP port is shared by all shards.
        return first + number + (path == "http.port") if first else 0

    def _share_secret(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        secret = self._folder / SECRET_NAME
        if self._config.cluster.secret_file is None and not secret.exists():
            write_atomically(secret, secrets.token_urlsafe(32).encode() + b"\n")


def run_shards(config: Config, count: int, arguments: Sequence[str]) -> int:
    """Run the shards in the foreground until asked to stop; the exit code."""
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    try:
        check_shards(count)
    except InvalidRequest as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_USAGE
    shards = Shards(config, count, arguments)
    try:
        ready = shards.start()
        line = {**ready[0], "pid": os.getpid(), "shards": ready}
        if config.http.enabled and config.http.port:
            line["http"] = f"{config.http.host}:{config.http.shared_port or config.http.port}"
        sys.stdout.write(f"READY {json.dumps(line)}\n")
        sys.stdout.flush()
        shards.watch(stopping)
    except MainstemError as error:
        sys.stderr.write(f"{error}\n")
        shards.stop()
        return 1
    return shards.stop()
