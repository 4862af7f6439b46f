"""``mainstem dev``: a node in the foreground and lines to paste into another shell."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from mainstem.cli.parameters.shared import Assignments, ConfigFile


def dev(
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", "-d", help="Folder of all data.  [default: data]")
    ] = None,
    throwaway: Annotated[
        bool, typer.Option("--throwaway", help="Use a temporary folder, removed at the end.")
    ] = False,
    kafka_port: Annotated[
        int | None, typer.Option(help="Kafka port; 0 picks a free one.  [default: 9092]")
    ] = None,
    http_port: Annotated[
        int | None, typer.Option(help="HTTP port; 0 picks a free one.  [default: 8080]")
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address of all listeners.  [default: 127.0.0.1]")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Allow addresses that other machines reach.")
    ] = False,
    nodes: Annotated[
        int,
        typer.Option("--nodes", "-n", min=1, max=9, help="How many nodes; several form a cluster."),
    ] = 1,
    demo: Annotated[
        bool,
        typer.Option("--demo/--no-demo", help="Also run example pipelines on Spark."),
    ] = False,
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Start a node for development, or several that form a cluster; Ctrl-C stops them."""
    if nodes > 1:
        raise typer.Exit(
            _run_several(
                nodes,
                _DevClusterOptions(data_dir, throwaway, kafka_port, http_port, host, insecure),
                [*(["--config", config] if config else []), *_sets(assignments)],
            )
        )
    from mainstem.node.config.command_line import assigned
    from mainstem.node.config.loader import load

    flags: dict[str, object] = {
        "node.data_dir": data_dir,
        "node.insecure": insecure or None,
        "kafka.host": host,
        "kafka.port": kafka_port,
        "http.host": host,
        "http.port": http_port,
        "amqp.host": host,
        "amqp.port": 0 if kafka_port == 0 else None,
        "mqtt.host": host,
        "mqtt.port": 0 if kafka_port == 0 else None,
        "native.host": host,
        "native.port": 0 if kafka_port == 0 else None,
    } | assigned(assignments or [])
    file = Path(config) if config else None
    if not throwaway:
        loaded = load(file=file, environment=os.environ, flags=flags, preset="local")
        raise typer.Exit(_run(loaded.config, demo=demo))
    with tempfile.TemporaryDirectory(prefix="mainstem-dev-") as folder:
        flags["node.data_dir"] = folder
        loaded = load(file=file, environment=os.environ, flags=flags, preset="local")
        raise typer.Exit(_run(loaded.config, demo=demo))


class _DevClusterOptions(NamedTuple):
    """The options that also apply to a cluster."""

    data_dir: str | None
    throwaway: bool
    kafka_port: int | None
    http_port: int | None
    host: str | None
    insecure: bool


def _sets(assignments: list[str] | None) -> list[str]:
    return [word for each in assignments or [] for word in ("--set", each)]


def _run_several(nodes: int, asked: _DevClusterOptions, arguments: list[str]) -> int:
    from mainstem.cli.development.cluster import DevClusterSettings, peer_port_beside, run_cluster

    if asked.host is not None:
        arguments += ["--kafka-host", asked.host, "--http-host", asked.host]
        arguments += ["--set", f"cluster.peer_host={asked.host}"]
    if asked.insecure:
        arguments.append("--insecure")
    kafka_port = 9092 if asked.kafka_port is None else asked.kafka_port
    http_port = 8080 if asked.http_port is None else asked.http_port
    peer_port = peer_port_beside(kafka_port, http_port)

    def run(folder: Path) -> int:
        settings = DevClusterSettings(
            folder, kafka_port, http_port, peer_port, arguments, _command()
        )
        return run_cluster(nodes, settings)

    if not asked.throwaway:
        return run(Path(asked.data_dir or "data"))
    with tempfile.TemporaryDirectory(prefix="mainstem-dev-") as folder:
        return run(Path(folder))


def _run(config: object, *, demo: bool) -> int:
    from mainstem.cli.development.demo_process import DemoProcess
    from mainstem.node import lifecycle
    from mainstem.node.config.settings import Config
    from mainstem.telemetry import logs

    assert isinstance(config, Config)
    logs.configure(level=config.logs.level, style=config.logs.format, out=sys.stderr)
    scheme = "https" if config.http.tls else "http"
    demonstration = DemoProcess()

    def announce(addresses: Mapping[str, object]) -> None:
        sys.stdout.write(greeting(addresses, config.node.data_dir, scheme=scheme))
        if demo and not _is_open(addresses):
            sys.stdout.write(
                "The demonstration is skipped: it needs a listener without authentication.\n"
            )
        sys.stdout.flush()
        if demo and _is_open(addresses):
            folder = Path(config.node.data_dir) / "demo"
            demonstration.start(str(addresses["kafka"]), folder, _command())

    return lifecycle.run(config, announce=announce, before_stop=demonstration.stop)


# Other protocols: key of the address and name to print.
_OTHERS = {"amqp": "AMQP", "mqtt": "MQTT", "native": "native"}


def _listeners(addresses: Mapping[str, object]) -> list[str]:
    listed = addresses.get("kafka_listeners")
    return [str(each) for each in listed] if isinstance(listed, list) else []


def _is_open(addresses: Mapping[str, object]) -> bool:
    """Whether clients are served without authenticating."""
    return _listeners(addresses)[:1] in ([], [f"PLAINTEXT://{addresses['kafka']}"])


def greeting(addresses: Mapping[str, object], data_dir: str, *, scheme: str = "http") -> str:
    """The text printed at the start: every address, and lines to paste."""
    kafka, http = str(addresses["kafka"]), addresses.get("http")
    listeners = _listeners(addresses)
    url = f"{scheme}://{http}" if http else None
    lines = [
        "",
        "Mainstem is ready.",
        "",
        *(f"  Kafka   {address}" for address in listeners or [kafka]),
        *([f"  HTTP    {url}"] if url else []),
        *(f"  {name:<8}{addresses[key]}" for key, name in _OTHERS.items() if key in addresses),
        f"  data    {Path(data_dir).absolute()}",
        "",
        "Paste into another shell:",
        "",
        *(
            [*_lines_to_paste(kafka, url), *_lines_for_queues(addresses)]
            if _is_open(addresses)
            else _lines_with_login(listeners[0], kafka)
        ),
        "",
        "Ctrl-C stops the node.",
        "",
    ]
    return "\n".join(lines) + "\n"


def _lines_to_paste(kafka: str, url: str | None) -> list[str]:
    return [
        f"  echo hello | kcat -b {kafka} -t greetings -P",
        f"  kcat -b {kafka} -t greetings -C -o beginning -e",
        *_mainstem_lines(kafka),
        *([f"  curl {url}/v1/topics"] if url else []),
        "",
        "Or into Python, with confluent-kafka:",
        "",
        "  from confluent_kafka import Producer",
        f'  producer = Producer({{"bootstrap.servers": "{kafka}"}})',
        '  producer.produce("greetings", b"hello")',
        "  producer.flush()",
    ]


def _lines_for_queues(addresses: Mapping[str, object]) -> list[str]:
    """Lines to paste for MQTT and AMQP clients."""
    return [*_mqtt_lines(addresses), *_amqp_lines(addresses)]


def _mqtt_lines(addresses: Mapping[str, object]) -> list[str]:
    if "mqtt" not in addresses:
        return []
    host, _, port = str(addresses["mqtt"]).rpartition(":")
    where = f"-h {host} -p {port} -t home/light"
    return [
        "",
        "Or with the mosquitto tools:",
        "",
        f"  mosquitto_pub {where} -m on -q 1 -r",
        f"  mosquitto_sub {where} -v",
    ]


def _amqp_lines(addresses: Mapping[str, object]) -> list[str]:
    if "amqp" not in addresses:
        return []
    return [
        "",
        "Or with pika, a RabbitMQ client:",
        "",
        "  import pika",
        f'  url = "amqp://guest:guest@{addresses["amqp"]}/%2F"',
        "  channel = pika.BlockingConnection(pika.URLParameters(url)).channel()",
        '  channel.queue_declare("work", durable=True)',
        '  channel.basic_publish("", "work", b"hello")',
    ]


def _lines_with_login(listener: str, kafka: str) -> list[str]:
    """Lines with login options, to be completed by the user."""
    kind = listener.partition("://")[0]
    user = " --user NAME" if kind.startswith("SASL") else " --cert-file FILE --key-file FILE"
    tls = " --ca-file FILE" if kind.endswith("SSL") else ""
    return [f"  {_command()} topic list -b {kafka}{user}{tls}"]


def _command() -> str:
    command = Path(sys.argv[0])
    # Started as .venv/bin/mainstem, the command is not on the path of the other shell.
    return str(command) if command.parent != Path() and command.name == "mainstem" else "mainstem"


def _mainstem_lines(kafka: str) -> list[str]:
    from mainstem.cli.login.access import DEFAULT_ADDRESS

    bootstrap = "" if kafka == DEFAULT_ADDRESS else f" -b {kafka}"
    name = _command()
    return [
        f"  {name} produce greetings hello{bootstrap}",
        f"  {name} consume greetings --from-beginning --max 1{bootstrap}",
    ]
