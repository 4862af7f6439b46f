"""Runs errands with Kafka's own console tools, through their Java main classes.

The tools work on lines of text: a scenario's keys, values and headers are printable for them.
"""

import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import IO

from bench.peers.kafka.peer import POM
from bench.peers.maven import SHORT_LIVED, classpath
from tests.clients.errand import Errand, from_arguments
from tests.clients.records import Headers, Record, encode, read_file

TOOLS = "org.apache.kafka.tools"
NULL = "(null)"
TAB = "\t"


class ToolFailed(RuntimeError):
    """A console tool ended with an error."""


def create(errand: Errand) -> None:
    options = ["--create", "--topic", errand.topic, "--partitions", str(errand.partitions)]
    for name, value in errand.configs.items():
        options += ["--config", f"{name}={value}"]
    run(f"{TOOLS}.TopicCommand", ["--bootstrap-server", errand.bootstrap, *options])


def produce(errand: Errand) -> None:
    options = ["--bootstrap-server", errand.bootstrap, "--topic", errand.topic]
    if errand.codec:
        options += ["--compression-codec", errand.codec]
    if errand.max_record_bytes:
        options += ["--command-property", f"max.request.size={errand.request_bytes}"]
    records = read_file(Path(errand.input))
    for headed, group in groupby(records, key=lambda record: bool(record.headers)):
        reader = ["--reader-property", f"null.marker={NULL}"]
        reader += ["--reader-property", "parse.key=true"]
        reader += ["--reader-property", f"parse.headers={str(headed).lower()}"]
        lines = "".join(_line(record, headed=headed) for record in group)
        run(f"{TOOLS}.ConsoleProducer", [*options, *reader], content=lines.encode())


def consume(errand: Errand) -> None:
    options = [*_consumer_options(errand), "--group", errand.group, "--from-beginning"]
    _copy([*options, "--max-messages", str(errand.count)], Path(errand.output))


def read(errand: Errand) -> None:
    offset = str(errand.offset)
    if errand.timestamp_ms is not None:
        offset = _offset_at(errand, errand.timestamp_ms)
    options = [*_consumer_options(errand), "--partition", str(errand.partition)]
    options += ["--offset", offset, "--max-messages", str(errand.count)]
    _copy(options, Path(errand.output))


def member(errand: Errand) -> None:
    options = [*_consumer_options(errand), "--group", errand.group, "--from-beginning"]
    if errand.session_timeout_ms:
        options += ["--command-property", f"session.timeout.ms={errand.session_timeout_ms}"]
    _copy(options, Path(errand.output))


def run(tool: str, options: list[str], *, content: bytes = b"") -> str:
    """What a console tool prints; its failure is ours."""
    done = subprocess.run(command(tool, options), input=content, capture_output=True, check=False)
    if done.returncode:
        raise ToolFailed(f"{tool} {options}\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode()


def command(tool: str, options: list[str]) -> list[str]:
    """The command line of a console tool."""
    # The heap of Apache's own scripts for tools.
    return ["java", "-Xmx512M", *SHORT_LIVED, "-cp", classpath(POM), tool, *options]


def _line(record: Record, *, headed: bool) -> str:
    parts = [_text(record.key), _text(record.value)]
    if headed:
        parts.insert(0, ",".join(f"{name}:{_text(value)}" for name, value in record.headers))
    return TAB.join(parts) + "\n"


def _text(content: bytes | None) -> str:
    return NULL if content is None else content.decode()


def _offset_at(errand: Errand, timestamp_ms: int) -> str:
    options = ["--bootstrap-server", errand.bootstrap, "--time", str(timestamp_ms)]
    options += ["--topic-partitions", f"{errand.topic}:{errand.partition}"]
    printed = run(f"{TOOLS}.GetOffsetShell", options)
    return printed.strip().splitlines()[-1].rpartition(":")[2]


def _consumer_options(errand: Errand) -> list[str]:
    options = ["--bootstrap-server", errand.bootstrap, "--topic", errand.topic]
    options += ["--command-property", "check.crcs=true"]
    for shown in ("timestamp", "partition", "offset", "headers", "key"):
        options += ["--formatter-property", f"print.{shown}=true"]
    return [*options, "--formatter-property", f"null.literal={NULL}"]


def _copy(options: list[str], target: Path) -> None:
    with (
        target.open("w", buffering=1) as output,
        subprocess.Popen(
            command(f"{TOOLS}.consumer.ConsoleConsumer", options), stdout=subprocess.PIPE
        ) as process,
    ):
        assert process.stdout is not None
        for record in _records(process.stdout):
            output.write(encode(record) + "\n")
    if process.returncode:
        sys.exit(process.returncode)


def _records(stream: IO[bytes]) -> Iterator[Record]:
    for line in stream:
        time, partition, offset, headers, key, value = (
            line.decode().removesuffix("\n").split(TAB, 5)
        )
        yield Record(
            key=_content(key),
            value=_content(value),
            headers=_headers(headers),
            timestamp_ms=int(time.rpartition(":")[2]),
            partition=int(partition.rpartition(":")[2]),
            offset=int(offset.rpartition(":")[2]),
        )


def _content(text: str) -> bytes | None:
    return None if text in (NULL, "null") else text.encode()


def _headers(text: str) -> Headers:
    if text == "NO_HEADERS":
        return ()
    pairs = (part.partition(":") for part in text.split(","))
    return tuple((name, _content(value)) for name, _, value in pairs)


if __name__ == "__main__":
    asked = from_arguments()
    {"create": create, "produce": produce, "consume": consume, "read": read, "member": member}[
        asked.op
    ](asked)
