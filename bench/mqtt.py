"""MQTT: what a message from one client to another costs, and connections that do nothing.

One publisher and one subscriber of one topic, at most a thousand messages between them; with QoS 1
both are acknowledged. Mosquitto keeps everything in memory. A node stores every message, whatever
its QoS, and acknowledges it once it is as durable as the row says; what a subscriber gets of QoS 0
is stored too.
"""

import contextlib
import json
import resource
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from bench.figures import GOALS, Figure
from bench.loads import LOAD_TIMEOUT_S, ROOT
from bench.measure import costs, rss_bytes, settle
from bench.peers.mosquitto.peer import Mosquitto, is_installed
from bench.progress import Samples

from mainstem.testing.local_node import LocalNode

LOADS = {
    "mqtt_qos0_100b": (0, 100),
    "mqtt_qos0_1kb": (0, 1_000),
    "mqtt_qos1_100b": (1, 100),
    "mqtt_qos1_1kb": (1, 1_000),
}
IDLE = "mqtt_idle_memory"
CONNECTIONS = 10_000


class MqttServer(Protocol):
    """A running server process that speaks MQTT."""

    mqtt: str

    @property
    def pid(self) -> int:
        """The process that is measured."""


class MqttNode(LocalNode):
    """A node that serves MQTT."""

    def __init__(self, *arguments: str) -> None:
        flags = ("--set", "mqtt.enabled=true", "--set", "mqtt.port=0")
        limit = ("--set", f"mqtt.max_connections={2 * CONNECTIONS}")
        super().__init__(arguments=(*flags, *limit, *arguments))
        self.mqtt = ""

    def start(self, *, timeout_s: float = 30.0) -> None:
        """Start the process and wait until it serves."""
        super().start(timeout_s=timeout_s)
        self.mqtt = str(self.announced["mqtt"])


@dataclass(frozen=True)
class MqttSide:
    """One server."""

    title: str
    server: MqttServer


def measure_mqtt(
    samples: Samples, wanted: set[str], rounds: int, *, quick: bool, peer: bool
) -> None:
    """Every wanted figure of MQTT, in interleaved rounds."""
    count = 20_000 if quick else 100_000
    with _open_files(), _sides(peer=peer) as sides:
        for number in range(0 if quick else -1, rounds):
            first = number % len(sides)
            for side in [*sides[first:], *sides[:first]]:
                for name in wanted & set(LOADS):
                    if not samples.has(name, side.title, max(number, 0)):
                        _note(samples, name, side, number, _through(side, name, count))
        for side in sides if IDLE in wanted else ():
            if not samples.has(IDLE, side.title, 0):
                _note(samples, IDLE, side, 0, _idle(side))


def _note(samples: Samples, name: str, side: MqttSide, number: int, figure: Figure) -> None:
    label = "warm-up" if number < 0 else f"round {number + 1}"
    value = f"{figure.value:,.1f} {GOALS[name].unit}"
    sys.stderr.write(f"{label}  {name:18} {side.title:28} {value}\n")
    if number >= 0:
        samples.add(name, side.title, figure)


def _through(side: MqttSide, name: str, count: int) -> Figure:
    settle()
    qos, size_bytes = LOADS[name]
    topic = f"bench/{uuid.uuid4().hex[:8]}"
    words = ["through", side.server.mqtt, topic, str(count), str(size_bytes), str(qos)]
    with costs(side.server.pid) as cost:
        done = subprocess.run(
            [sys.executable, "-m", "bench.loaders.mqtt", *words],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LOAD_TIMEOUT_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the load on {side.title} failed: {done.stderr[-800:]}")
    beside = {
        "rate": count / json.loads(done.stdout)["seconds"],
        "rss_mb": cost.rss_max_bytes / 1e6,
    }
    return Figure(cost.cpu_s * 1e6 / count, beside)


def _idle(side: MqttSide) -> Figure:
    """Resident memory of the server while so many connections are open, and what they add."""
    before = rss_bytes(side.server.pid)
    command = [sys.executable, "-m", "bench.loaders.mqtt", "idle", side.server.mqtt]
    with subprocess.Popen(
        [*command, str(CONNECTIONS)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None, "asked for"
        if not client.stdout.readline():
            raise RuntimeError(f"{side.title} does not take {CONNECTIONS} connections")
        held = rss_bytes(side.server.pid)
        client.communicate()
    return Figure(held / 1e6, {"added_kb": (held - before) / 1e3 / CONNECTIONS})


@contextlib.contextmanager
def _open_files() -> Iterator[None]:
    """Ask for as many descriptors as the connections need, for the servers too."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextlib.contextmanager
def _sides(*, peer: bool) -> Iterator[list[MqttSide]]:
    with contextlib.ExitStack() as stack:
        synced = stack.enter_context(MqttNode())
        written = stack.enter_context(MqttNode("--flush-policy", "written"))
        sides = [
            MqttSide("mainstem (fsync)", synced),
            MqttSide("mainstem (page cache)", written),
        ]
        if peer and not is_installed():
            sys.stderr.write("Mosquitto is not installed: Debian's mosquitto has it\n")
        elif peer:
            sides.append(MqttSide("mosquitto (memory)", stack.enter_context(Mosquitto())))
        yield sides
