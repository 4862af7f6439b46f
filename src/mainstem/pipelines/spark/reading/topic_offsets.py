"""The requests of a topic reader: existing partitions, and their offsets."""

import re
from collections.abc import Collection, Mapping
from typing import Final

from mainstem.client.cluster import Cluster
from mainstem.client.consuming.offset_query import list_offsets
from mainstem.client.values import TopicInfo, TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.pipelines.spark.reading.offset_map import Offsets
from mainstem.pipelines.spark.reading.options import EARLIEST, LATEST, OffsetBound, ReadOptions

TIMEOUT_MS: Final = 60_000
_REMEDY: Final = "create the topic, or check its name"


async def partitions(cluster: Cluster, options: ReadOptions) -> list[TopicPartition]:
    """The current partitions that the options select.

    Raises:
        InvalidRequest: a topic or partition of the options does not exist.
    """
    topics = await _topics(cluster, options)
    there = {
        TopicPartition(name, index) for name, topic in topics.items() for index in topic.partitions
    }
    if not options.assigned:
        return sorted(there)
    missing = sorted(set(options.assigned) - there)
    if missing:
        raise InvalidRequest(
            ErrorCode.INVALID_PARTITIONS,
            "the partition does not exist",
            subject=str(missing[0]),
            remedy=_REMEDY,
        )
    return sorted(options.assigned)


async def _topics(cluster: Cluster, options: ReadOptions) -> dict[str, TopicInfo]:
    if options.pattern is None:
        return await cluster.retrying(
            lambda: _named(cluster, options.topics), timeout_ms=TIMEOUT_MS
        )
    wanted = compiled(options.pattern)
    found = await cluster.retrying(cluster.all_topics, timeout_ms=TIMEOUT_MS)
    matching = [
        name for name, topic in found.items() if wanted.fullmatch(name) and not topic.is_internal
    ]
    return await cluster.topics(matching) if matching else {}


async def _named(cluster: Cluster, names: Collection[str]) -> dict[str, TopicInfo]:
    try:
        return await cluster.topics(names)
    except MainstemError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC:
            raise
        # Writers wait until a topic is created; for a reader a missing topic is an error.
        raise InvalidRequest(
            ErrorCode.INVALID_TOPIC_NAME,
            "the topic does not exist",
            subject=error.subject,
            remedy=_REMEDY,
        ) from None


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of topic names.

    Raises:
        InvalidRequest: it is not a regular expression.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidRequest(
            ErrorCode.INVALID_PATTERN, str(error), subject="subscribePattern"
        ) from None


async def earliest(cluster: Cluster, wanted: Collection[TopicPartition]) -> Offsets:
    """The first offsets of partitions."""
    return await _ask(cluster, dict.fromkeys(wanted, EARLIEST), read_committed=False)


async def latest(
    cluster: Cluster, options: ReadOptions, wanted: Collection[TopicPartition]
) -> Offsets:
    """The end offsets of partitions; with read_committed, the last stable offset."""
    asked = dict.fromkeys(wanted, LATEST)
    return await _ask(cluster, asked, read_committed=options.read_committed)


async def located(
    cluster: Cluster, options: ReadOptions, edge: OffsetBound, wanted: Collection[TopicPartition]
) -> Offsets:
    """The offsets of a bound for some partitions.

    Raises:
        InvalidRequest: no record has the given timestamp or a later one.
    """
    asked: dict[TopicPartition, int] = {}
    known: Offsets = {}
    for each in wanted:
        where = edge.by_partition.get(each, edge.everywhere)
        if where is None:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                "no timestamp is given for this partition",
                subject=str(each),
                remedy="give a timestamp for every partition of the topic",
            )
        if edge.is_time or where in (EARLIEST, LATEST):
            asked[each] = where
        else:
            known[each] = where
    found = await _ask(cluster, asked, read_committed=options.read_committed)
    beyond = [each for each, offset in found.items() if offset < 0]
    if beyond:
        if edge is options.start and not options.late_time_is_latest:
            raise InvalidRequest(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"no record has timestamp {asked[beyond[0]]} or later",
                subject=str(beyond[0]),
                remedy="use an earlier time, or set startingOffsetsByTimestampStrategy to latest",
            )
        found |= await latest(cluster, options, beyond)
    return known | found


async def _ask(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], *, read_committed: bool
) -> Offsets:
    if not wanted:
        return {}
    found = await list_offsets(
        cluster, wanted, read_committed=read_committed, timeout_ms=TIMEOUT_MS
    )
    return {each: answer.offset for each, answer in found.items()}
