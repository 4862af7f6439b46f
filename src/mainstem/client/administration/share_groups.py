"""Administration of share groups (KIP-932): members, start offsets and lag.

``GroupAdmin`` uses it for groups of this kind; its callers need not know the kind of a group.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from msgspec import Struct

from mainstem.client import errors
from mainstem.client.values import MemberInfo, TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.wire.kafka.messages import alter_share_group_offsets as altering
from mainstem.wire.kafka.messages import describe_share_group_offsets as describing
from mainstem.wire.kafka.messages.share_group_describe import (
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

SHARE_PROTOCOL: Final = "share"

T = TypeVar("T")
Ask = Callable[[str, Struct], Awaitable[Any]]  # sends a request to the coordinator of a group


class RetryCall(Protocol):
    """Repeats an attempt while its error is retriable or the coordinator has moved."""

    async def __call__(self, group: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of the last attempt."""
        ...


class ShareGroupOffset(Struct, frozen=True):
    """The start offset of a share group in a partition, and its lag."""

    start: int
    lag: int = -1


class ShareGroupAdmin:
    """Sends requests to the coordinator through ``ask``, repeated by ``repeat`` if it has moved."""

    def __init__(self, ask: Ask, repeat: RetryCall) -> None:
        self._ask = ask
        self._repeat = repeat

    async def find(self, group: str) -> DescribedGroup | None:
        """The share group of that name; None if there is none or the broker is older."""
        return await self._repeat(group, lambda: self._find(group))

    async def positions(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        """The offsets of a share group in every partition that it has started to read."""
        return await self._repeat(group, lambda: self._positions(group))

    async def move(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Sets the start offsets of a share group without members."""
        await self._repeat(group, lambda: self._move(group, offsets))

    async def _find(self, group: str) -> DescribedGroup | None:
        try:
            response: ShareGroupDescribeResponse = await self._ask(
                group, ShareGroupDescribeRequest([group])
            )
        except InvalidRequest as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return None
            raise
        [found] = response.groups
        if found.error_code in (errors.GROUP_ID_NOT_FOUND, errors.UNSUPPORTED_VERSION):
            return None
        errors.check(found.error_code, found.error_message, subject=group)
        return found

    async def _positions(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        asked = describing.DescribeShareGroupOffsetsRequestGroup(group, None)
        response: describing.DescribeShareGroupOffsetsResponse = await self._ask(
            group, describing.DescribeShareGroupOffsetsRequest([asked])
        )
        [found] = response.groups
        errors.check(found.error_code, found.error_message, subject=group)
        positions = {}
        for topic in found.topics:
            for part in topic.partitions:
                place = TopicPartition(topic.topic_name, part.partition_index)
                errors.check(part.error_code, part.error_message, subject=str(place))
                if part.start_offset >= 0:
                    positions[place] = ShareGroupOffset(part.start_offset, part.lag)
        return positions

    async def _move(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        topics: dict[str, altering.AlterShareGroupOffsetsRequestTopic] = {}
        for (name, partition), offset in offsets.items():
            topic = topics.setdefault(name, altering.AlterShareGroupOffsetsRequestTopic(name, []))
            topic.partitions.append(
                altering.AlterShareGroupOffsetsRequestPartition(partition, offset)
            )
        response: altering.AlterShareGroupOffsetsResponse = await self._ask(
            group, altering.AlterShareGroupOffsetsRequest(group, list(topics.values()))
        )
        errors.check(response.error_code, response.error_message, subject=group)
        for answered in response.responses:
            for answer in answered.partitions:
                place = f"{answered.topic_name}-{answer.partition_index}"
                errors.check(answer.error_code, answer.error_message, subject=place)


def share_member(member: Member) -> MemberInfo:
    """A member in the form of other groups; share groups have no static members."""
    return MemberInfo(
        id=member.member_id,
        instance_id=None,
        client_id=member.client_id,
        host=member.client_host,
        assignment=tuple(
            TopicPartition(topic.topic_name, partition)
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ),
    )
