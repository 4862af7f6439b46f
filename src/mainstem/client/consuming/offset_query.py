"""Offset queries: the earliest, the latest, the one at a point in time."""

import asyncio
from collections.abc import Mapping
from typing import Final

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.client.network.link import Link
from mainstem.client.values import OffsetAndTime, TopicPartition
from mainstem.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3

CONSUMER: Final = -1  # replica id of a client


async def list_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: int = 60_000,
) -> dict[TopicPartition, OffsetAndTime]:
    """Offsets by timestamp, or by ``LATEST``, ``EARLIEST``, ``MAX_TIMESTAMP``.

    A timestamp gives the first record at or after it, and -1 where there is none.

    Raises:
        MainstemError: a partition has no response in time.
    """
    found: dict[TopicPartition, OffsetAndTime] = {}

    async def ask_the_rest() -> None:
        rest = {partition: time for partition, time in wanted.items() if partition not in found}
        groups: dict[Link, dict[TopicPartition, ListOffsetsPartition]] = {}
        for partition, time in rest.items():
            link, info = await cluster.leader(*partition)
            groups.setdefault(link, {})[partition] = ListOffsetsPartition(
                partition.partition, info.leader_epoch, time
            )
        asked = [_ask(link, group, read_committed=read_committed) for link, group in groups.items()]
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        failures = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                failures.append(outcome)
            else:
                answers, failure = outcome
                found.update(answers)
                failures += failure
        if failures:
            raise failures[0]

    await cluster.retrying(ask_the_rest, timeout_ms=timeout_ms)
    return found


async def _ask(
    link: Link, group: dict[TopicPartition, ListOffsetsPartition], *, read_committed: bool
) -> tuple[dict[TopicPartition, OffsetAndTime], list[BaseException]]:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, question in group.items():
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(partition.topic))
        topic.partitions.append(question)
    response: ListOffsetsResponse = await link.call(
        ListOffsetsRequest(
            replica_id=CONSUMER,
            isolation_level=int(read_committed),
            topics=list(topics.values()),
            timeout_ms=30_000,
        )
    )
    answers = {}
    failures: list[BaseException] = []
    for topic_answer in response.topics:
        for answer in topic_answer.partitions:
            partition = TopicPartition(topic_answer.name, answer.partition_index)
            if answer.error_code:
                failures.append(errors.error_of(answer.error_code, subject=str(partition)))
            else:
                answers[partition] = OffsetAndTime(answer.offset, answer.timestamp)
    return answers, failures
