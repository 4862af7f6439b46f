"""Offsets of share groups: described, altered and deleted by administrators.

Offsets are altered or deleted only while the group has no members; earlier decisions of a
partition's writer are void then.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from mainstem.broker.api.broker import Streams
from mainstem.coordination.consumer.topics import TopicSource
from mainstem.coordination.share.facts import ShareState
from mainstem.coordination.share.group import SharePartitionKey
from mainstem.coordination.share.requests import (
    UNKNOWN_LAG,
    ShareOffset,
    ShareOffsetsDeleted,
    ShareOffsetToAlter,
)
from mainstem.coordination.share.service import ShareGroupCoordinator
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.metadata import Topic

READS_AT_ONCE: Final = 64


class ShareOffsets:
    """Administration of the offsets of share groups."""

    def __init__(
        self, members: ShareGroupCoordinator, topics: TopicSource, streams: Streams
    ) -> None:
        self._members = members
        self._topics = topics
        self._streams = streams

    async def shown(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None
    ) -> list[ShareOffset]:
        """A group's offsets, in the given partitions or (None) in all that it has read."""
        states = self._members.states(group_id)
        if topics is None:
            return await self._all(states)
        shown = []
        for name, partitions in topics:
            topic = self._topics.by_name(name)
            for partition in partitions:
                if topic is None or not 0 <= partition < len(topic.streams):
                    unknown = InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=name)
                    shown.append(ShareOffset(name, partition, error=unknown))
                else:
                    shown.append(await self._state(name, (topic.id, partition), states))
        return shown

    async def altered(
        self, group_id: str, wanted: Sequence[ShareOffsetToAlter]
    ) -> list[ShareOffset]:
        """Set offsets of a group."""
        outcomes: list[ShareOffset] = []
        moves: list[tuple[SharePartitionKey, int]] = []
        for target in wanted:
            try:
                topic = self._topic(target.topic, target.partition)
                if target.start_offset < 0:
                    raise InvalidRequest(
                        ErrorCode.INVALID_REQUEST, f"invalid offset {target.start_offset}"
                    )
            except MainstemError as error:
                outcomes.append(ShareOffset(target.topic, target.partition, error=error))
                continue
            moves.append(((topic.id, target.partition), target.start_offset))
            outcomes.append(
                ShareOffset(target.topic, target.partition, topic.id, target.start_offset)
            )
        await self._members.move(group_id, moves)
        return outcomes

    async def deleted(self, group_id: str, names: Sequence[str]) -> list[ShareOffsetsDeleted]:
        """Delete offsets of a group, by topic."""
        read = {topic for topic, _ in self._members.states(group_id)}
        outcomes = []
        forgotten = []
        for name in names:
            topic = self._topics.by_name(name)
            if topic is None or topic.id not in read:
                unknown = InvalidRequest(ErrorCode.UNKNOWN_TOPIC, "never read", subject=name)
                outcomes.append(ShareOffsetsDeleted(name, error=unknown))
                continue
            forgotten.append(topic.id)
            outcomes.append(ShareOffsetsDeleted(name, topic.id))
        await self._members.forget(group_id, forgotten)
        return outcomes

    async def _all(self, states: Mapping[SharePartitionKey, ShareState]) -> list[ShareOffset]:
        """All partitions that the group has read; waits once for those without a writer."""
        shown: list[ShareOffset] = []
        places = self._places(states)
        for at in range(0, len(places), READS_AT_ONCE):
            some = places[at : at + READS_AT_ONCE]
            shown += await asyncio.gather(*(self._state(*each, states) for each in some))
        return shown

    def _places(
        self, states: Mapping[SharePartitionKey, ShareState]
    ) -> list[tuple[str, SharePartitionKey]]:
        found = []
        for place in states:
            topic = self._topics.by_id(place[0])
            if topic is not None:
                found.append((topic.name, place))
        return sorted(found)

    async def _state(
        self, name: str, place: SharePartitionKey, states: Mapping[SharePartitionKey, ShareState]
    ) -> ShareOffset:
        topic_id, partition = place
        state = states.get(place)
        if state is None:
            return ShareOffset(name, partition, topic_id)
        share = state.share
        lag = UNKNOWN_LAG
        try:
            end = (await self._streams.open_reader(name, partition)).last_stable
            lag = max(end - share.start - share.done, 0)
        except MainstemError:
            pass  # without a writer the end is unknown, but the group's offset is known
        return ShareOffset(name, partition, topic_id, share.start, state.leader_epoch, lag)

    def _topic(self, name: str, partition: int) -> Topic:
        topic = self._topics.by_name(name)
        if topic is None or not 0 <= partition < len(topic.streams):
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=f"{name}-{partition}")
        return topic
