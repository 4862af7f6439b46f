"""``mainstem consume``: prints records from any offset, with or without a group."""

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mainstem.cli.errors import UsageFailure, exit_on_broken_pipe
from mainstem.cli.login.access import ConnectionOptions
from mainstem.cli.output.record_format import DEFAULT_FORMAT, as_document, compile_format
from mainstem.cli.output.render import Output
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    OutputForm,
    TimeoutSeconds,
)
from mainstem.cli.parameters.timestamp import parse_timestamp

if TYPE_CHECKING:
    from mainstem.client.admin import Admin
    from mainstem.client.consumer import Consumer
    from mainstem.client.values import ConsumerRecord, TopicPartition

POLL_MS = 250
RECORDS_PER_POLL_MAX = 500

Printer = Callable[["ConsumerRecord"], bytes]


class StartPosition(NamedTuple):
    """Where to start without a group: the first field that is set decides."""

    offset: int | None = None  # below zero: so many records before the end
    moment_ms: int | None = None
    beginning: bool = True


class ConsumeOptions(NamedTuple):
    """What to read, and when to stop."""

    topics: Sequence[str]
    partitions: Sequence[int]
    group: str | None
    start: StartPosition
    follow: bool
    records_max: int | None
    timeout_s: float


class ParquetOptions(NamedTuple):
    """What to write to a file."""

    topic: str
    partitions: Sequence[int]
    since_ms: int | None
    read_committed: bool


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.")],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest record.")
    ] = False,
    offset: Annotated[
        int | None,
        typer.Option("--offset", help="Start at this offset; -5: five records before the end."),
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", help="Start at a time: a date, or -2h.")
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Read as a member of this group, and commit."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records instead of ending.")
    ] = False,
    records_max: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="End after so many records.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help=r"%t %p %o %T %k %s %h, \n, \t  [default: %s\\n]"),
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out aborted transactions.")
    ] = False,
    to_parquet: Annotated[
        Path | None,
        typer.Option("--to-parquet", help="Write all records to a Parquet file."),
    ] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Print records: all that exist, or with --follow also new ones.

    Without a group, reading starts at the oldest record, with --follow at the next new one. With a
    group it starts at the committed offsets. -o json prints one object per line.
    """
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise UsageFailure("--from-beginning, --offset and --timestamp exclude each other")
    if group is not None and (offset is not None or timestamp is not None or partition):
        raise UsageFailure(
            "a group reads from its committed offsets",
            subject="--group",
            remedy="change them first: mainstem group reset-offsets",
        )
    moment_ms = parse_timestamp(timestamp, time.time_ns() // 1_000_000) if timestamp else None
    if to_parquet is not None:
        if group is not None or follow or offset is not None or records_max or form or topics[1:]:
            raise UsageFailure(
                "a Parquet file holds all records of one topic",
                subject="--to-parquet",
                remedy="use it with --timestamp, --partition and --read-committed only",
            )
        table = ParquetOptions(topics[0], partition or [], moment_ms, read_committed)
        asyncio.run(_write_parquet(bootstrap, table, to_parquet, timeout))
        return
    start = StartPosition(offset, moment_ms, from_beginning or not (follow or group))
    options = ConsumeOptions(topics, partition or [], group, start, follow, records_max, timeout)
    with exit_on_broken_pipe():
        asyncio.run(_read(bootstrap, options, printer(form, output), read_committed=read_committed))


def printer(form: str | None, output: Output) -> Printer:
    """From a record to the bytes to print."""
    if output is Output.TABLE:
        return compile_format(DEFAULT_FORMAT if form is None else form)
    if form is not None:
        raise UsageFailure("--format and --output exclude each other")
    if output is Output.JSON:
        import msgspec

        return lambda record: msgspec.json.encode(as_document(record)) + b"\n"
    import yaml

    return lambda record: yaml.safe_dump(
        as_document(record), sort_keys=False, explicit_start=True, allow_unicode=True
    ).encode()


async def _write_parquet(
    bootstrap: ConnectionOptions, options: ParquetOptions, path: Path, timeout_s: float
) -> None:
    try:
        from mainstem.client.table import TableSettings, to_parquet
    except ImportError as error:
        raise UsageFailure(
            f"{error.name} is not installed",
            subject="--to-parquet",
            remedy="pip install mainstem[arrow]",
        ) from None
    settings = TableSettings(
        partitions=options.partitions or None,
        since_ms=options.since_ms,
        read_committed=options.read_committed,
        with_headers=True,
    )
    async with bootstrap.cluster(timeout_s) as cluster:
        rows = await to_parquet(cluster, options.topic, path, settings)
    sys.stderr.write(f"{rows:,} records written to {path}\n")


async def _read(
    bootstrap: ConnectionOptions, options: ConsumeOptions, form: Printer, *, read_committed: bool
) -> None:
    from mainstem.client.admin import Admin
    from mainstem.client.consumer import Consumer, ConsumerSettings

    settings = ConsumerSettings(
        reset="earliest" if options.start.beginning else "latest",
        isolation="read_committed" if read_committed else "read_uncommitted",
        api_timeout_ms=round(options.timeout_s * 1000),
    )
    async with bootstrap.cluster(options.timeout_s) as cluster:
        admin = Admin(cluster, timeout_ms=settings.api_timeout_ms)
        places = await _places(admin, options)
        ends = await _ends(admin, places)
        async with Consumer(cluster, options.group, settings) as consumer:
            if options.group is not None:
                consumer.subscribe(options.topics)
            else:
                consumer.assign(places)
                await _seek_to_start(consumer, options.start, ends)
            await _print_all(consumer, options, ends, form)


async def _places(admin: "Admin", options: ConsumeOptions) -> list["TopicPartition"]:
    from mainstem.client.values import TopicPartition

    infos = await admin.describe_topics(options.topics)
    places = [
        TopicPartition(topic, index)
        for topic, info in infos.items()
        for index in info.partitions
        if not options.partitions or index in options.partitions
    ]
    if not places:
        raise UsageFailure("the topic has no such partition", subject=", ".join(options.topics))
    return places


async def _ends(admin: "Admin", places: Sequence["TopicPartition"]) -> dict["TopicPartition", int]:
    from mainstem.client.consuming.offset_query import LATEST

    found = await admin.offsets(dict.fromkeys(places, LATEST))
    return {place: answer.offset for place, answer in found.items()}


async def _seek_to_start(
    consumer: "Consumer", start: StartPosition, ends: dict["TopicPartition", int]
) -> None:
    from mainstem.client.consuming.offset_query import EARLIEST, LATEST

    if start.offset is not None and start.offset >= 0:
        for place in ends:
            consumer.seek(place, start.offset)
    elif start.offset is not None:
        starts = await consumer.offsets(dict.fromkeys(ends, EARLIEST))
        for place, end in ends.items():
            consumer.seek(place, max(starts[place].offset, end + start.offset))
    elif start.moment_ms is not None:
        await consumer.seek_to_time(start.moment_ms)
    else:
        await consumer.seek_to_time(EARLIEST if start.beginning else LATEST)


async def _print_all(
    consumer: "Consumer", options: ConsumeOptions, ends: dict["TopicPartition", int], form: Printer
) -> None:
    """Read until the limit is reached or, without --follow, the ends noted at the start."""
    from mainstem.client.values import TopicPartition

    out = sys.stdout.buffer
    left = options.records_max
    received_at = time.monotonic()
    while options.follow or not await _is_read(consumer, ends):
        count = RECORDS_PER_POLL_MAX if left is None else min(left, RECORDS_PER_POLL_MAX)
        records = await consumer.poll(POLL_MS, count)
        if options.group is None and not options.follow:
            # Records that arrived meanwhile did not exist when the command started.
            records = [r for r in records if r.offset < ends[TopicPartition(r.topic, r.partition)]]
        out.write(b"".join(form(record) for record in records))
        out.flush()
        if left is not None:
            left -= len(records)
            if left <= 0:
                return
        if records:
            received_at = time.monotonic()
        elif not options.follow and time.monotonic() - received_at > options.timeout_s:
            return


async def _is_read(consumer: "Consumer", ends: dict["TopicPartition", int]) -> bool:
    """Whether every assigned partition is read up to the noted end."""
    assignment = consumer.assignment
    for place in assignment:
        if place in ends and await consumer.position(place) < ends[place]:
            return False
    return bool(assignment)
