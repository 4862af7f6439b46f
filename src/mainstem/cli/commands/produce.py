"""``mainstem produce``: records from the command line, standard input or a file."""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import ConnectionOptions
from mainstem.cli.output.render import Output, show_confirmation
from mainstem.cli.parameters.record_input import (
    InputRecord,
    LineReader,
    LineRules,
    headers,
    separator,
)
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    OutputForm,
    TimeoutSeconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.client.producer import Producer

PIECE_BYTES = 64 * 1024
PIECES_WAITING_MAX = 16


class Target(NamedTuple):
    """Destination of the records, and the key and headers of each."""

    topic: str
    partition: int | None
    headers: tuple[tuple[str, bytes | None], ...]


class Sending(NamedTuple):
    """How records are sent."""

    acks: str
    compression: str
    timeout_s: float


def produce(
    topic: Annotated[str, typer.Argument(help="Topic to write to.")],
    value: Annotated[
        str | None, typer.Argument(help="One record; otherwise lines are read.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help=r"Each line is key, this, value; \t is a tab."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; may be repeated."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Write to this partition only.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read lines from a file, not from stdin.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The whole input is one record.")] = False,
    null: Annotated[
        str | None,
        typer.Option("--null", help="A line equal to this is a record without value (a deletion)."),
    ] = None,
    acks: Annotated[str, typer.Option(help="Acknowledgements to wait for: 0, 1 or all.")] = "all",
    compression: Annotated[
        str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")
    ] = "none",
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Write records to a topic: one line, one record."""
    if key is not None and key_separator is not None:
        raise UsageFailure("--key and --key-separator exclude each other")
    if value is not None and file is not None:
        raise UsageFailure("a value and --file exclude each other")
    rules = LineRules(
        key_separator=separator(key_separator) if key_separator is not None else None,
        key=key.encode() if key is not None else None,
        null_marker=null.encode() if null is not None else None,
    )
    target = Target(topic, partition, headers(header or []))
    sending = Sending(acks, compression, timeout)
    source = _Source(value, file, whole=whole)
    count = asyncio.run(_run(bootstrap, sending, target, source.records(rules)))
    noun = "record" if count == 1 else "records"
    show_confirmation(
        f"{count} {noun} written to {topic}", {"topic": topic, "records": count}, output
    )


async def _run(
    bootstrap: ConnectionOptions,
    sending: Sending,
    target: Target,
    records: AsyncIterator[list[InputRecord]],
) -> int:
    from mainstem.client.producer import Producer, ProducerSettings

    limit_ms = round(sending.timeout_s * 1000)
    settings = ProducerSettings(
        acks=sending.acks,
        compression=sending.compression,
        block_timeout_ms=limit_ms,
        delivery_timeout_ms=limit_ms,
    )
    async with (
        bootstrap.cluster(sending.timeout_s) as cluster,
        Producer(cluster, settings) as producer,
    ):
        return await _send_all(producer, target, records)


async def _send_all(
    producer: "Producer", target: Target, records: AsyncIterator[list[InputRecord]]
) -> int:
    count = 0
    async for lines in records:
        for line in lines:
            await producer.send(
                target.topic,
                line.value,
                key=line.key,
                partition=target.partition,
                headers=target.headers,
            )
        count += len(lines)
    await producer.flush()
    return count


class _Source:
    """Where the bytes of the records come from."""

    def __init__(self, value: str | None, file: Path | None, *, whole: bool) -> None:
        self._value = value
        self._file = file
        self._whole = whole

    async def records(self, rules: LineRules) -> AsyncIterator[list[InputRecord]]:
        """Records in groups, as they become available."""
        if self._value is not None:
            yield [InputRecord(rules.key, self._value.encode())]
            return
        pieces = self._pieces()
        if self._whole:
            content = b"".join([piece async for piece in pieces])
            yield [InputRecord(rules.key, content)]
            return
        reader = LineReader(rules)
        async for piece in pieces:
            yield reader.feed(piece)
        yield reader.end()

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._file is None:
            async for piece in _from_stdin():
                yield piece
            return
        try:
            size = self._file.stat().st_size
            opened = self._file.open("rb")
        except OSError as error:
            raise UsageFailure(error.strerror or str(error), subject=str(self._file)) from error
        with opened, _progress(size, self._file.name) as advance:
            while piece := opened.read(PIECE_BYTES):
                advance(len(piece))
                yield piece


async def _from_stdin() -> AsyncIterator[bytes]:
    """Standard input as it arrives.

    A thread reads it, because a terminal shares its mode with standard output and must not be made
    non-blocking; it is a daemon, so that an interrupt does not wait for the next line.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes] = asyncio.Queue(PIECES_WAITING_MAX)
    descriptor = sys.stdin.fileno()

    def read() -> None:
        piece = b"begin"
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):  # the loop is closed
            while piece:
                piece = os.read(descriptor, PIECE_BYTES)
                asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()

    threading.Thread(target=read, daemon=True).start()
    while piece := await pieces.get():
        yield piece


@contextlib.contextmanager
def _progress(total: int, name: str) -> Iterator["Callable[[int], object]"]:
    """A progress bar on a terminal, otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.advance(task, count)
