"""``mainstem dev``: a node in the foreground and lines to paste into another shell."""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from mainstem.cli.options import Assignments, ConfigFile


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
    config: ConfigFile = None,
    assignments: Assignments = None,
) -> None:
    """Start a node for development; Ctrl-C stops it."""
    from mainstem.node.arguments import assigned
    from mainstem.node.config_source import load

    flags: dict[str, object] = {
        "node.data_dir": data_dir,
        "node.insecure": insecure or None,
        "kafka.host": host,
        "kafka.port": kafka_port,
        "http.host": host,
        "http.port": http_port,
    } | assigned(assignments or [])
    file = Path(config) if config else None
    if not throwaway:
        loaded = load(file=file, environment=os.environ, flags=flags, preset="local")
        raise typer.Exit(_run(loaded.config))
    with tempfile.TemporaryDirectory(prefix="mainstem-dev-") as folder:
        flags["node.data_dir"] = folder
        loaded = load(file=file, environment=os.environ, flags=flags, preset="local")
        raise typer.Exit(_run(loaded.config))


def _run(config: object) -> int:
    from mainstem.node import lifecycle
    from mainstem.node.config import Config
    from mainstem.telemetry import logs

    assert isinstance(config, Config)
    logs.configure(level=config.logs.level, style=config.logs.format, out=sys.stderr)
    return lifecycle.run(config, announce=lambda addresses: greet(addresses, config.node.data_dir))


def greet(addresses: Mapping[str, object], data_dir: str) -> None:
    """Every address, and lines to paste."""
    sys.stdout.write(greeting(addresses, data_dir))
    sys.stdout.flush()


def greeting(addresses: Mapping[str, object], data_dir: str) -> str:
    """The text."""
    kafka, http = str(addresses["kafka"]), addresses.get("http")
    lines = [
        "",
        "Mainstem is ready.",
        "",
        f"  Kafka   {kafka}",
        *([f"  HTTP    http://{http}"] if http else []),
        f"  data    {Path(data_dir).absolute()}",
        "",
        "Paste into another shell:",
        "",
        f"  echo hello | kcat -b {kafka} -t greetings -P",
        f"  kcat -b {kafka} -t greetings -C -o beginning -e",
        *_mainstem_lines(kafka),
        *([f"  curl http://{http}/v1/topics"] if http else []),
        "",
        "Or into Python, with confluent-kafka:",
        "",
        "  from confluent_kafka import Producer",
        f'  producer = Producer({{"bootstrap.servers": "{kafka}"}})',
        '  producer.produce("greetings", b"hello")',
        "  producer.flush()",
        "",
        "Ctrl-C stops the node.",
        "",
    ]
    return "\n".join(lines) + "\n"


def _mainstem_lines(kafka: str) -> list[str]:
    from mainstem.cli.access import DEFAULT_ADDRESS

    bootstrap = "" if kafka == DEFAULT_ADDRESS else f" -b {kafka}"
    command = Path(sys.argv[0])
    # Started as .venv/bin/mainstem, the command is not on the path of the other shell.
    name = str(command) if command.parent != Path() and command.name == "mainstem" else "mainstem"
    return [
        f"  {name} produce greetings hello{bootstrap}",
        f"  {name} consume greetings --from-beginning --max 1{bootstrap}",
    ]
