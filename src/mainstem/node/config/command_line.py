"""The flags of ``mainstemd``: short names for common settings, ``--set`` for all settings.

Parsed with the standard library, because a node should be ready in a fraction of a second.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.config.loader import LoadedConfig, load
from mainstem.node.config.settings import PRESETS

# Each flag with its setting and its help.
FLAGS: dict[str, tuple[str, str]] = {
    "--data-dir": ("node.data_dir", "folder of all data"),
    "--node-id": ("node.id", "id of this node"),
    "--kafka-host": ("kafka.host", "address of the Kafka listener"),
    "--kafka-port": ("kafka.port", "its port; 0 picks a free one"),
    "--http-host": ("http.host", "address of the HTTP listener"),
    "--http-port": ("http.port", "its port; 0 picks a free one"),
    "--peer-port": ("cluster.peer_port", "port for other nodes; 0 picks a free one"),
    "--join": ("cluster.join", "host:port of nodes to form a cluster with, separated by commas"),
    "--flush-policy": ("topics.flush_policy", "fsync or written: when a record counts as stored"),
    "--log-level": ("logs.level", "debug, info, warning or error"),
    "--log-format": ("logs.format", "auto, text or json"),
}


def parser(program: str = "mainstemd") -> argparse.ArgumentParser:
    """The parser, also used to print help."""
    made = argparse.ArgumentParser(
        prog=program,
        description="Run one Mainstem node in the foreground.",
        epilog="Every setting: mainstem config show. Later wins: defaults, preset, file, "
        "MAINSTEM_<SECTION>__<NAME>, flags.",
    )
    made.add_argument("--config", type=Path, metavar="FILE", help="a .toml, .yaml or .yml file")
    made.add_argument("--preset", choices=sorted(PRESETS), help="set of defaults for a use case")
    for flag, (path, text) in FLAGS.items():
        made.add_argument(flag, dest=path, metavar="VALUE", help=text)
    made.add_argument(
        "--insecure",
        dest="node.insecure",
        action="store_const",
        const=True,
        help="allow listeners without a login that other machines can reach",
    )
    made.add_argument(
        "--rebuild-catalogue",
        action="store_true",
        help="move the catalogue aside and rebuild it from the data folders of the topics",
    )
    made.add_argument(
        "--shards",
        type=int,
        default=1,
        metavar="N",
        help="run this many nodes on this machine, one per core, as brokers of one cluster",
    )
    made.add_argument(
        "--set",
        dest="assignments",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="any setting; may be repeated",
    )
    return made


def configuration(
    arguments: Sequence[str], environment: Mapping[str, str], *, preset: str | None = None
) -> LoadedConfig:
    """The configuration that command line and environment describe.

    Args:
        arguments: the command line without the program's name.
        environment: the process environment.
        preset: used when the command line names none.
    """
    parsed = vars(parser().parse_args(arguments))
    flags = {path: parsed[path] for path, _ in FLAGS.values()}
    flags["node.insecure"] = parsed["node.insecure"]
    flags |= assigned(parsed["assignments"])
    return load(
        file=parsed["config"],
        environment=environment,
        flags=flags,
        preset=parsed["preset"] or preset,
    )


def assigned(assignments: Sequence[str]) -> dict[str, object]:
    """``section.name=value`` texts as flags."""
    flags: dict[str, object] = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        if not equals:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"{text!r} is not of the form section.name=value",
                subject="--set",
                remedy="for example --set kafka.port=0",
            )
        flags[path.strip()] = value.strip()
    return flags


def is_rebuild_requested(arguments: Sequence[str]) -> bool:
    """Whether the catalogue is to be rebuilt at this start."""
    return bool(parser().parse_args(arguments).rebuild_catalogue)


def shards_of(arguments: Sequence[str]) -> tuple[int, list[str]]:
    """The value of ``--shards``, and the command line without that flag."""
    only = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    only.add_argument("--shards", type=int, default=1)
    found, rest = only.parse_known_args(arguments)
    return found.shards, rest
