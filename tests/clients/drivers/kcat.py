"""Runs errands with kcat, the command line client on librdkafka.

kcat takes one set of headers, one partition and no timestamp per run, and it cannot administer
topics: ``create`` relies on auto-creation, as its users do.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import IO

from tests.clients.errand import Errand, from_arguments
from tests.clients.records import Headers, Record, encode, read_file

# A header line per record says how many bytes of headers, key and value follow it.
FORMAT = "%p %o %T %K %S %h\n%k%s"
KEY_MARK, RECORD_MARK = "\x1f", "\x1e"
# A record larger than this is handed over as a file of its own.
LINE_BYTES_MAX = 200_000


def create(errand: Errand) -> None:
    _run(["-P", "-t", errand.topic, "-b", errand.bootstrap], content=b"created\n")


def produce(errand: Errand) -> None:
    command = ["-P", "-t", errand.topic, "-b", errand.bootstrap]
    if errand.codec:
        command += ["-z", errand.codec]
    if errand.max_record_bytes:
        command += ["-X", f"message.max.bytes={errand.request_bytes}"]
    records = read_file(Path(errand.input))
    for (headers, partition, large), group in groupby(records, key=_run_key):
        options = [part for name, value in headers for part in ("-H", _assignment(name, value))]
        if partition is not None:
            options += ["-p", str(partition)]
        if large:
            _produce_files(command + options, list(group))
        else:
            _produce_lines(command + options, list(group))


def consume(errand: Errand) -> None:
    command = [*_group_options(errand), "-c", str(errand.count), "-G", errand.group, errand.topic]
    _copy(command, Path(errand.output))


def read(errand: Errand) -> None:
    start = f"s@{errand.timestamp_ms}" if errand.timestamp_ms is not None else str(errand.offset)
    command = ["-C", "-b", errand.bootstrap, "-t", errand.topic, "-p", str(errand.partition)]
    command += ["-o", start, "-c", str(errand.count), "-X", "check.crcs=true"]
    _copy(command, Path(errand.output))


def member(errand: Errand) -> None:
    _copy([*_group_options(errand), "-u", "-G", errand.group, errand.topic], Path(errand.output))


def _group_options(errand: Errand) -> list[str]:
    options = ["-b", errand.bootstrap, "-X", "auto.offset.reset=earliest", "-X", "check.crcs=true"]
    if errand.session_timeout_ms:
        options += ["-X", f"session.timeout.ms={errand.session_timeout_ms}"]
    return options


def _run_key(record: Record) -> tuple[Headers, int | None, bool]:
    large = record.value is not None and len(record.value) > LINE_BYTES_MAX
    return record.headers, record.partition, large


def _assignment(name: str, value: bytes | None) -> str:
    return name if value is None else f"{name}={value.decode()}"


def _produce_lines(command: list[str], records: list[Record]) -> None:
    command = [*command, "-D", RECORD_MARK, "-K", KEY_MARK]
    if any(record.value is None for record in records):
        # -Z sends an empty value as null.
        command.append("-Z")
    lines = []
    for record in records:
        # A line without the mark has no key.
        key = b"" if record.key is None else record.key + KEY_MARK.encode()
        lines.append(key + (record.value or b"") + RECORD_MARK.encode())
    _run(command, content=b"".join(lines))


def _produce_files(command: list[str], records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        paths = []
        for number, record in enumerate(records):
            path = Path(scratch) / str(number)
            path.write_bytes(record.value or b"")
            paths.append(str(path))
        # Keys are one per run when whole files are sent.
        for key, group in groupby(zip(records, paths, strict=True), key=lambda pair: pair[0].key):
            chosen = [path for _, path in group]
            options = ["-k", key.decode()] if key is not None else []
            _run([*command, *options, *chosen], content=b"")


def _run(command: list[str], *, content: bytes) -> None:
    subprocess.run(["kcat", *command], input=content, check=True)


def _copy(command: list[str], target: Path) -> None:
    """Write the records that kcat prints, each as soon as it is whole."""
    # -q hides the notes about assignments; -E ends kcat on errors instead of going on.
    with (
        target.open("w", buffering=1) as output,
        subprocess.Popen(["kcat", "-q", "-f", FORMAT, *command], stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        for record in _records(process.stdout):
            output.write(encode(record) + "\n")
    if process.returncode:
        sys.exit(process.returncode)


def _records(stream: IO[bytes]) -> Iterator[Record]:
    while line := stream.readline():
        partition, offset, timestamp, key_bytes, value_bytes, *rest = line.decode().split(" ", 5)
        key = _exactly(stream, int(key_bytes))
        value = _exactly(stream, int(value_bytes))
        yield Record(
            key=key,
            value=value,
            headers=_headers("".join(rest).rstrip("\n")),
            timestamp_ms=int(timestamp),
            partition=int(partition),
            offset=int(offset),
        )


def _exactly(stream: IO[bytes], size: int) -> bytes | None:
    if size < 0:
        return None
    content = stream.read(size)
    if len(content) != size:
        raise EOFError("kcat ended in the middle of a record")
    return content


def _headers(text: str) -> Headers:
    pairs = []
    for part in text.split(","):
        if part:
            name, _, value = part.partition("=")
            pairs.append((name, value.encode()))
    return tuple(pairs)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    asked = from_arguments()
    {"create": create, "produce": produce, "consume": consume, "read": read, "member": member}[
        asked.op
    ](asked)
