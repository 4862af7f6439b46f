"""Where share groups stand: shown, moved and forgotten by administrators.

A group is moved or forgotten only while it has no members; what a partition's writer decided before
does not count then.
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

LOOKS_AT_ONCE: Final = 64


class ShareOffsets:
    """What administrators ask about the positions of share groups."""

    def __init__(
        self, members: ShareGroupCoordinator, topics: TopicSource, streams: Streams
    ) -> None:
        self._members = members
        self._topics = topics
        self._streams = streams

    async def shown(
        self, group_id: str, topics: Sequence[tuple[str, Sequence[int]]] | None
    ) -> list[ShareOffset]:
        """Where a group stands, in the partitions asked for or (None) wherever it has read."""
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
        """Let a group stand elsewhere."""
        outcomes: list[ShareOffset] = []
        moves: list[tuple[SharePartitionKey, int]] = []
        for target in wanted:
            try:
                topic = self._topic(target.topic, target.partition)
                if target.start_offset < 0:
                    raise InvalidRequest(
                        ErrorCode.INVALID_REQUEST, f"there is no offset {target.start_offset}"
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
        """Forget where a group stands in topics."""
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
        """Wherever the group has read; partitions that nobody writes are waited for together."""
        shown: list[ShareOffset] = []
        places = self._places(states)
        for at in range(0, len(places), LOOKS_AT_ONCE):
            some = places[at : at + LOOKS_AT_ONCE]
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
            end = (await self._streams.look(name, partition)).last_stable
            lag = max(end - share.start - share.done, 0)
        except MainstemError:
            pass  # where it ends is not known while nobody writes it; where the group stands is
        return ShareOffset(name, partition, topic_id, share.start, state.leader_epoch, lag)

    def _topic(self, name: str, partition: int) -> Topic:
        topic = self._topics.by_name(name)
        if topic is None or not 0 <= partition < len(topic.streams):
            raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=f"{name}-{partition}")
        return topic
