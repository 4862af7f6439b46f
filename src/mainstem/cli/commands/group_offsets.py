"""``mainstem group reset-offsets``: sets the committed offsets of a group without members."""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.render import Output, show_rows
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
    from mainstem.client.values import TopicPartition

Offsets = Mapping["TopicPartition", int]


class OffsetReset(NamedTuple):
    """The new offset; exactly one field is set."""

    earliest: bool = False
    latest: bool = False
    offset: int | None = None
    moment_ms: int | None = None
    shift: int | None = None


class PartitionBounds(NamedTuple):
    """What is known about the partitions before any offset changes."""

    committed: Offsets
    starts: Offsets
    ends: Offsets
    at_moment: Offsets


def reset_offsets(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION]",
            help="What to reset; may be repeated. Default: all committed partitions.",
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the start.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="To this offset.")
    ] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", help="To the first record since: a date, or -2h.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="By so many records; negative: backwards.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Set the committed offsets of a group that has no members."""
    moment_ms = (
        parse_timestamp(to_time, time.time_ns() // 1_000_000) if to_time is not None else None
    )
    reset = OffsetReset(to_earliest, to_latest, to_offset, moment_ms, shift_by)
    if sum(value is not None and value is not False for value in reset) != 1:
        raise UsageFailure(
            "give exactly one target",
            remedy="--to-earliest, --to-latest, --to-offset, --to-time or --shift-by",
        )

    async def act(admin: "Admin") -> tuple[Offsets, Offsets]:
        ground = await _collect(admin, name, topic or [], reset)
        new = new_offsets(reset, ground)
        if not dry_run:
            await admin.groups.reset(name, new)
        return ground.committed, new

    old, new = with_admin(bootstrap, timeout, act)
    rows = [
        {"topic": p.topic, "partition": p.partition, "old": old.get(p), "new": offset}
        for p, offset in sorted(new.items())
    ]
    show_rows(rows, output, columns=["topic", "partition", "old", "new"])


def new_offsets(reset: OffsetReset, ground: PartitionBounds) -> dict["TopicPartition", int]:
    """The new offset of each partition, always between its start and its end."""
    new = {}
    for partition, start in ground.starts.items():
        end = ground.ends[partition]
        if reset.earliest:
            wanted = start
        elif reset.latest:
            wanted = end
        elif reset.offset is not None:
            wanted = reset.offset
        elif reset.shift is not None:
            wanted = ground.committed.get(partition, start) + reset.shift
        else:
            # No record has this timestamp or a later one: the group goes to the end.
            found = ground.at_moment[partition]
            wanted = found if found >= 0 else end
        new[partition] = min(max(wanted, start), end)
    return new


async def _collect(
    admin: "Admin", group: str, topics: Sequence[str], reset: OffsetReset
) -> PartitionBounds:
    from mainstem.client.consuming.offset_query import EARLIEST, LATEST

    committed = {p: found.offset for p, found in (await admin.groups.offsets(group)).items()}
    places = await _places(admin, topics, committed)

    async def offsets(which: int) -> Offsets:
        answers = await admin.offsets(dict.fromkeys(places, which))
        return {partition: answer.offset for partition, answer in answers.items()}

    at_moment: Offsets = {}
    if reset.moment_ms is not None:
        at_moment = await offsets(reset.moment_ms)
    return PartitionBounds(committed, await offsets(EARLIEST), await offsets(LATEST), at_moment)


async def _places(
    admin: "Admin", topics: Sequence[str], committed: Offsets
) -> list["TopicPartition"]:
    """The partitions that ``--topic`` names; without it, those that the group has committed."""
    from mainstem.client.values import TopicPartition

    if not topics:
        if not committed:
            raise UsageFailure("the group has committed nothing", remedy="name topics with --topic")
        return sorted(committed)
    places: set[TopicPartition] = set()
    for text in topics:
        topic, colon, partition = text.partition(":")
        if not colon:
            info = (await admin.describe_topics([topic]))[topic]
            places |= {TopicPartition(topic, index) for index in info.partitions}
        elif partition.isascii() and partition.isdigit():
            places.add(TopicPartition(topic, int(partition)))
        else:
            raise UsageFailure("not a partition", subject=text, remedy="write topic:0")
    return sorted(places)
