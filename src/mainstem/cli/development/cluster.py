"""``mainstem dev -n 3``: several nodes on this machine that form a cluster, without containers.

Each is a process of its own with its own folder; the first is started alone, the others join it.
They stop together. Every node has a machine label of its own, so that replicas are spread.
"""

import secrets
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mainstem.cli.development.certificates import write_secret
from mainstem.node.process import NodeProcess

NODES_MAX = 9
SECRET_NAME = "cluster.secret"  # noqa: S105 - a file's name
# Only the first node has the well-known ports of these; all of them serve every topic and queue.
OTHER_PORTS = ("amqp.port", "mqtt.port", "native.port")


class DevClusterSettings(NamedTuple):
    """The options of the command line that apply to all nodes."""

    folder: Path
    kafka_port: int
    http_port: int
    peer_port: int
    arguments: Sequence[str]
    command: str = "mainstem"


def peer_port_beside(kafka_port: int, http_port: int) -> int:
    """The first port for other nodes; it leaves room for the client ports of all nodes."""
    if not kafka_port:
        return 0
    return next(
        port
        for port in (kafka_port + 1_000, kafka_port + 2_000, kafka_port - 1_000)
        if 1_024 <= port <= 65_000 and abs(port - http_port) >= NODES_MAX
    )


def command_of(number: int, settings: DevClusterSettings, join: str) -> list[str]:
    """The command line of one node."""
    from mainstem.node.config.setting_spec import leaves

    def port(first: int) -> str:
        return str(first + number - 1 if first else 0)

    command = [
        sys.executable, "-m", "mainstem.node", "--preset", "local",
        "--node-id", str(number),
        "--data-dir", str(settings.folder / f"node-{number}"),
        "--kafka-port", port(settings.kafka_port),
        "--http-port", port(settings.http_port),
        "--peer-port", port(settings.peer_port),
        "--set", f"cluster.machine=local-{number}",
        "--set", f"cluster.secret_file={settings.folder / SECRET_NAME}",
    ]  # fmt: skip
    if number > 1 or not settings.kafka_port:
        for path in OTHER_PORTS:
            if path in leaves():
                command += ["--set", f"{path}=0"]
    if join:
        command += ["--join", join]
    return [*command, *settings.arguments]


def run_cluster(count: int, settings: DevClusterSettings) -> int:
    """Run the nodes until Ctrl-C, or until none is left; the exit code."""
    settings.folder.mkdir(parents=True, exist_ok=True)
    secret = settings.folder / SECRET_NAME
    if not secret.exists():
        write_secret(secret, secrets.token_urlsafe(32))
    stopping = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())
    nodes: list[NodeProcess] = []
    try:
        nodes.append(NodeProcess(1, command_of(1, settings, "")))
        nodes[0].wait_ready()
        join = str(nodes[0].addresses["peers"])
        nodes += [NodeProcess(n, command_of(n, settings, join)) for n in range(2, count + 1)]
        for node in nodes[1:]:
            node.wait_ready()
        sys.stdout.write(
            greeting([node.addresses for node in nodes], settings.folder, settings.command)
        )
        sys.stdout.flush()
        _watch(nodes, stopping)
    finally:
        for node in nodes:
            node.stop()
        statuses = [node.wait() for node in nodes]
    return max(statuses, default=0)


def _watch(nodes: Sequence[NodeProcess], stopping: threading.Event) -> None:
    """Waits until asked to stop; reports every node that ends meanwhile."""
    running = set(nodes)
    while running and not stopping.wait(0.2):
        for node in [node for node in running if not node.is_running]:
            running.discard(node)
            sys.stdout.write(f"node {node.number} has stopped; {len(running)} still run\n")
            sys.stdout.flush()


def greeting(nodes: Sequence[Mapping[str, object]], folder: Path, command: str = "mainstem") -> str:
    """The text printed at the start; ``command`` is how this program is called."""
    first = nodes[0]["kafka"]
    lines = ["", f"Mainstem is ready: a cluster of {len(nodes)} nodes.", ""]
    for number, addresses in enumerate(nodes, start=1):
        web = f"   HTTP http://{addresses['http']}" if "http" in addresses else ""
        lines.append(f"  node {number}   Kafka {addresses['kafka']}{web}   pid {addresses['pid']}")
    every = ",".join(str(addresses["kafka"]) for addresses in nodes)
    lines += [
        f"  data     {folder.absolute()}",
        "",
        "Paste into another shell:",
        "",
        f"  {command} topic create greetings -p 3 -r {min(3, len(nodes))} -b {first}",
        f"  {command} produce greetings hello -b {every}",
        f"  {command} consume greetings --from-beginning --max 1 -b {every}",
        f"  {command} cluster nodes -b {first} --http http://{nodes[0].get('http')}",
        f"  kill -9 {nodes[-1]['pid']}   # the cluster continues",
        "",
        "Ctrl-C stops the nodes.",
        "",
    ]
    return "\n".join(lines) + "\n"
