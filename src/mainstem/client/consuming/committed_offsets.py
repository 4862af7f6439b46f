"""Committed offsets of a group: reading and writing them at its coordinator.

Topics are sent by name (OffsetFetch and OffsetCommit up to version 9): groups may have offsets
of topics that no longer exist and have no id.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.client.values import CommittedOffset, TopicPartition
from mainstem.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from mainstem.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

NAMES_UNTIL_VERSION: Final = 9
GROUPS_SINCE_VERSION: Final = 8
STABLE_SINCE_VERSION: Final = 7


_Answer = OffsetFetchResponsePartition | OffsetFetchResponsePartitions


class CommittingMember(NamedTuple):
    """The member that commits; the defaults are a client outside the group."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


OUTSIDER: Final = CommittingMember()


class OffsetSink(Protocol):
    """A transaction that offsets can be committed through."""

    async def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: CommittingMember = OUTSIDER,
    ) -> None:
        """Makes offsets part of the transaction."""
        ...


async def fetch_committed(
    cluster: Cluster,
    group: str,
    partitions: Collection[TopicPartition] | None = None,
    *,
    stable: bool = False,
    timeout_ms: int = 60_000,
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of a group, for some or all partitions; absent where there is none.

    ``stable`` waits for transactions that may still move the offsets.

    Raises:
        MainstemError: the coordinator refuses or does not respond in time.
    """
    return await cluster.retrying(
        lambda: _fetch(cluster, group, partitions, stable=stable),
        timeout_ms=timeout_ms,
        group=group,
    )


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    member: CommittingMember = OUTSIDER,
    *,
    timeout_ms: int = 60_000,
) -> None:
    """Commits offsets.

    Raises:
        Fenced: the member is no longer part of the group's current generation.
        MainstemError: the coordinator refuses or does not respond in time.
    """
    if offsets:
        await cluster.retrying(
            lambda: _commit(cluster, group, offsets, member), timeout_ms=timeout_ms, group=group
        )


async def _fetch(
    cluster: Cluster, group: str, partitions: Collection[TopicPartition] | None, *, stable: bool
) -> dict[TopicPartition, CommittedOffset]:
    link = await cluster.coordinator(group)
    connection = await link.connection()
    version = connection.version_of("OffsetFetch", NAMES_UNTIL_VERSION)
    request = _fetch_request(group, partitions, version)
    # Older brokers do not support this; they return what is committed.
    request.require_stable = stable and version >= STABLE_SINCE_VERSION
    response: OffsetFetchResponse = await connection.call(request, version=version)
    topics: list[tuple[str, Sequence[_Answer]]]
    if version >= GROUPS_SINCE_VERSION:
        errors.check(response.groups[0].error_code, subject=group)
        topics = [(topic.name, topic.partitions) for topic in response.groups[0].topics]
    else:
        errors.check(response.error_code, subject=group)
        topics = [(topic.name, topic.partitions) for topic in response.topics]
    found = {}
    for name, answers in topics:
        for answer in answers:
            partition = TopicPartition(name, answer.partition_index)
            errors.check(answer.error_code, subject=str(partition))
            if answer.committed_offset >= 0:
                found[partition] = CommittedOffset(
                    answer.committed_offset, answer.committed_leader_epoch, answer.metadata or ""
                )
    return found


def _fetch_request(
    group: str, partitions: Collection[TopicPartition] | None, version: int
) -> OffsetFetchRequest:
    indexes: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        indexes.setdefault(topic, []).append(partition)
    if version >= GROUPS_SINCE_VERSION:
        by_group = [
            OffsetFetchRequestTopics(name=n, partition_indexes=i) for n, i in indexes.items()
        ]
        asked = OffsetFetchRequestGroup(
            group_id=group, topics=None if partitions is None else by_group
        )
        return OffsetFetchRequest(groups=[asked])
    topics = [OffsetFetchRequestTopic(name, found) for name, found in indexes.items()]
    return OffsetFetchRequest(group_id=group, topics=None if partitions is None else topics)


async def _commit(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    member: CommittingMember,
) -> None:
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, partition), committed in offsets.items():
        topic = topics.setdefault(name, OffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    link = await cluster.coordinator(group)
    connection = await link.connection()
    response: OffsetCommitResponse = await connection.call(
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=list(topics.values()),
        ),
        version=connection.version_of("OffsetCommit", NAMES_UNTIL_VERSION),
    )
    for answered in response.topics:
        for answer in answered.partitions:
            errors.check(answer.error_code, subject=f"{answered.name}-{answer.partition_index}")
