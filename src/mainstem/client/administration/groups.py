"""Administration of groups of every kind: list, describe, offsets, lag, reset, delete."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct

from mainstem.client import errors
from mainstem.client.administration.named_configs import GROUP, NamedConfigs
from mainstem.client.administration.share_groups import (
    SHARE_PROTOCOL,
    ShareGroupAdmin,
    share_member,
)
from mainstem.client.cluster import Cluster
from mainstem.client.consuming.committed_offsets import commit_offsets, fetch_committed
from mainstem.client.consuming.offset_query import LATEST, list_offsets
from mainstem.client.network.link import Link
from mainstem.client.values import (
    CommittedOffset,
    GroupInfo,
    GroupListing,
    MemberInfo,
    NodeInfo,
    TopicPartition,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from mainstem.wire.kafka.messages.consumer_group_describe import (
    Member as ConsumerMember,
)
from mainstem.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from mainstem.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from mainstem.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from mainstem.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

if TYPE_CHECKING:
    from mainstem.wire.kafka.messages.consumer_protocol import ConsumerProtocolAssignment

DEAD: Final = "Dead"
CONSUMER_PROTOCOL: Final = "consumer"
ASSIGNMENT_VERSION_MAX: Final = 3

T = TypeVar("T")


class PartitionLag(Struct, frozen=True):
    """The lag of a group in one partition.

    ``committed`` is -1 without a committed offset, ``end`` is -1 if the partition is gone. For a
    share group ``committed`` is the first unfinished record, and ``left`` the number of unfinished
    ones: records after the first may be finished.
    """

    partition: TopicPartition
    committed: int
    end: int
    member: MemberInfo | None = None
    left: int | None = None

    @property
    def lag(self) -> int:
        """Offsets between the committed offset and the end; -1 if unknown."""
        if self.left is not None:
            return self.left
        if self.committed < 0 or self.end < 0:
            return -1
        return max(0, self.end - self.committed)


class GroupAdmin:
    """Administers groups; reached through ``Admin.groups``."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._shares = ShareGroupAdmin(self._at_coordinator, self._repeated)
        self._configs = NamedConfigs(cluster, GROUP, timeout_ms=timeout_ms)

    async def list_all(self, states: Collection[str] = ()) -> list[GroupListing]:
        """All groups of the cluster, or those in certain states."""
        await self._cluster.refresh()
        request = ListGroupsRequest(states_filter=list(states))
        asked = (self._cluster.link(node.id).call(request) for node in self._cluster.info.nodes)
        found: dict[str, GroupListing] = {}
        for response in await asyncio.gather(*asked):
            answer: ListGroupsResponse = response
            errors.check(answer.error_code)
            for group in answer.groups:
                found[group.group_id] = GroupListing(
                    group.group_id, group.group_state, group.protocol_type, group.group_type
                )
        return [found[name] for name in sorted(found)]

    async def describe(self, group: str) -> GroupInfo:
        """State, protocol and members of a group.

        Raises:
            InvalidRequest: the group does not exist.
        """
        return await self._cluster.retrying(
            lambda: self._describe(group), timeout_ms=self._timeout_ms, group=group
        )

    async def offsets(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets; for a share group, the first unfinished offsets."""
        if await self._shares.find(group) is None:
            return await fetch_committed(
                self._cluster, group, partitions, timeout_ms=self._timeout_ms
            )
        found = await self._shares.positions(group)
        wanted = found if partitions is None else partitions
        return {place: CommittedOffset(found[place].start) for place in wanted if place in found}

    async def lag(self, group: str) -> list[PartitionLag]:
        """The lag in every partition that the group has committed or reads now."""
        info = await self.describe(group)
        is_share = info.protocol_type == SHARE_PROTOCOL
        shares = await self._shares.positions(group) if is_share else {}
        committed = {place: CommittedOffset(at.start) for place, at in shares.items()}
        if not is_share:
            committed = await self.offsets(group)
        readers = {partition: member for member in info.members for partition in member.assignment}
        partitions = sorted(readers.keys() | committed.keys())
        # A group may have offsets of deleted topics, whose end is unknown.
        topics = await self._cluster.all_topics()
        known = [p for p in partitions if p.topic in topics]
        known = [p for p in known if p.partition in topics[p.topic].partitions]
        ends = await list_offsets(
            self._cluster, dict.fromkeys(known, LATEST), timeout_ms=self._timeout_ms
        )
        return [
            PartitionLag(
                partition,
                committed[partition].offset if partition in committed else -1,
                ends[partition].offset if partition in ends else -1,
                # Members of a share group read the same partitions: no partition has one owner.
                None if is_share else readers.get(partition),
                shares[partition].lag if partition in shares else None,
            )
            for partition in partitions
        ]

    async def reset(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the committed (for a share group: the start) offsets of a group without members.

        Raises:
            MainstemError: the group has members, or the coordinator refuses.
        """
        if await self._shares.find(group) is not None:
            await self._shares.move(group, offsets)
            return
        new = {partition: CommittedOffset(offset) for partition, offset in offsets.items()}
        try:
            await commit_offsets(self._cluster, group, new, timeout_ms=self._timeout_ms)
        except MainstemError as error:
            if error.code in (ErrorCode.UNKNOWN_MEMBER, ErrorCode.ILLEGAL_GENERATION):
                raise InvalidRequest(
                    ErrorCode.GROUP_NOT_EMPTY,
                    "the group has members, which commit its offsets",
                    subject=group,
                    remedy="stop the members of the group first",
                ) from error
            raise

    async def settings(self, group: str) -> dict[str, str]:
        """The settings of a group, defaults included."""
        return await self._configs.settings(group)

    async def alter_settings(
        self, group: str, changed: Mapping[str, str], removed: Iterable[str] = ()
    ) -> None:
        """Sets some settings of a group, which need not exist yet, and resets others."""
        await self._configs.alter(group, changed, removed)

    async def delete(self, groups: Iterable[str]) -> None:
        """Deletes groups that have no members, and their offsets."""
        for group in groups:
            await self._repeated(group, partial(self._delete, group))

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes committed offsets of partitions that no member of the group reads."""
        topics: dict[str, OffsetDeleteRequestTopic] = {}
        for name, partition in partitions:
            topic = topics.setdefault(name, OffsetDeleteRequestTopic(name))
            topic.partitions.append(OffsetDeleteRequestPartition(partition))
        request = OffsetDeleteRequest(group, list(topics.values()))
        await self._repeated(group, lambda: self._delete_offsets(group, request))

    async def _delete(self, group: str) -> None:
        response: DeleteGroupsResponse = await self._at_coordinator(
            group, DeleteGroupsRequest([group])
        )
        for answer in response.results:
            errors.check(answer.error_code, subject=answer.group_id)

    async def _delete_offsets(self, group: str, request: OffsetDeleteRequest) -> None:
        response: OffsetDeleteResponse = await self._at_coordinator(group, request)
        errors.check(response.error_code, subject=group)
        for answered in response.topics:
            for answer in answered.partitions:
                errors.check(answer.error_code, subject=f"{answered.name}-{answer.partition_index}")

    async def _at_coordinator(self, group: str, request: Struct) -> Any:
        link = await self._cluster.coordinator(group)
        return await link.call(request)

    async def _repeated(self, group: str, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms, group=group)

    async def _describe(self, group: str) -> GroupInfo:
        link = await self._cluster.coordinator(group)
        response: DescribeGroupsResponse = await link.call(DescribeGroupsRequest([group]))
        [found] = response.groups
        if found.error_code not in (0, errors.GROUP_ID_NOT_FOUND):
            errors.check(found.error_code, found.error_message, subject=group)
        if found.group_state == DEAD:
            return await self._describe_consumers(link, group)
        return GroupInfo(
            id=group,
            state=found.group_state,
            protocol_type=found.protocol_type,
            protocol=found.protocol_data,
            members=tuple(_member(found, member) for member in found.members),
            coordinator=self._node_of(link),
        )

    async def _describe_consumers(self, link: Link, group: str) -> GroupInfo:
        """The same for a group whose members are assigned by the coordinator."""
        unknown = InvalidRequest(ErrorCode.UNKNOWN_GROUP, "the group does not exist", subject=group)
        try:
            response: ConsumerGroupDescribeResponse = await link.call(
                ConsumerGroupDescribeRequest([group])
            )
        except InvalidRequest as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                raise unknown from error
            raise
        [found] = response.groups
        if found.error_code == errors.GROUP_ID_NOT_FOUND:
            return await self._describe_sharers(link, group)
        errors.check(found.error_code, found.error_message, subject=group)
        return GroupInfo(
            id=group,
            state=found.group_state,
            protocol_type=CONSUMER_PROTOCOL,
            protocol=found.assignor_name,
            members=tuple(_consumer(member) for member in found.members),
            coordinator=self._node_of(link),
        )

    async def _describe_sharers(self, link: Link, group: str) -> GroupInfo:
        """The same for a group whose members share partitions."""
        found = await self._shares.find(group)
        if found is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, "the group does not exist", subject=group)
        return GroupInfo(
            id=group,
            state=found.group_state,
            protocol_type=SHARE_PROTOCOL,
            protocol=found.assignor_name,
            members=tuple(share_member(member) for member in found.members),
            coordinator=self._node_of(link),
        )

    def _node_of(self, link: Link) -> NodeInfo:
        for node in self._cluster.info.nodes:
            if (node.host, node.port) == (link.host, link.port):
                return node
        return NodeInfo(-1, link.host, link.port)


def _member(group: DescribedGroup, member: DescribedGroupMember) -> MemberInfo:
    return MemberInfo(
        id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=read_assignment(group.protocol_type, member.member_assignment),
    )


def _consumer(member: ConsumerMember) -> MemberInfo:
    return MemberInfo(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        assignment=tuple(
            TopicPartition(topic.topic_name, partition)
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ),
    )


def read_assignment(protocol_type: str, data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a member; empty if the group uses another protocol."""
    if protocol_type != CONSUMER_PROTOCOL or not data:
        return ()
    try:
        _, decoded = codec.decode_data("ConsumerProtocolAssignment", ASSIGNMENT_VERSION_MAX, data)
    except codec.Malformed:
        return ()
    assignment: ConsumerProtocolAssignment = decoded
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )
