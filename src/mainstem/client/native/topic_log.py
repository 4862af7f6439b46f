"""Topics over the native protocol: create, delete, append, read by offset.

For groups, transactions and pipelining use ``producer`` and ``consumer``, which use the Kafka
protocol; this is for programs that use queues and also read the log.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Unpack

from mainstem.client.native.message import MessageProperties, outgoing
from mainstem.wire.native import requests
from mainstem.wire.native.answers import (
    Appended,
    RecordPosition,
    Records,
    TopicList,
    WireRecord,
    WireTopic,
)
from mainstem.wire.native.words import WireMessage, Word

EARLIEST: Final = -2
LATEST: Final = -1
WAIT_MS: Final = 5_000


class TopicLog:
    """The topic operations of a native client."""

    def __init__(self, ask: Callable[[Word], Awaitable[Any]]) -> None:
        self._ask = ask

    async def create(
        self, name: str, *, partitions: int = -1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic."""
        await self._ask(
            requests.CreateTopic(name=name, partitions=partitions, configs=dict(configs or {}))
        )

    async def delete(self, name: str) -> None:
        """Deletes a topic and its records."""
        await self._ask(requests.DeleteTopic(name=name))

    async def list_topics(self) -> list[WireTopic]:
        """Every topic that the user may see."""
        answer: TopicList = await self._ask(requests.ListTopics())
        return answer.topics

    async def append(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        **properties: Unpack[MessageProperties],
    ) -> RecordPosition:
        """Stores one message; returns its partition and offset."""
        [place] = await self.append_many(topic, [outgoing(value, properties, key)])
        return place

    async def append_many(
        self, topic: str, messages: Iterable[WireMessage], *, partition: int | None = None
    ) -> list[RecordPosition]:
        """Stores messages in order; returns the partition and offset of each."""
        word = requests.Append(topic=topic, messages=list(messages), partition=partition)
        answer: Appended = await self._ask(word)
        return answer.places

    async def read(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int = EARLIEST,
        limit: int = 500,
        wait_ms: int = 0,
    ) -> Records:
        """Records from an offset on, and the offset to continue from."""
        word = requests.Read(
            topic=topic, partition=partition, offset=offset, limit=limit, wait_ms=wait_ms
        )
        answer: Records = await self._ask(word)
        return answer

    async def follow(
        self, topic: str, *, partition: int = 0, offset: int = EARLIEST
    ) -> AsyncIterator[WireRecord]:
        """Records as they arrive, for ``async for``."""
        while True:
            found = await self.read(topic, partition=partition, offset=offset, wait_ms=WAIT_MS)
            offset = found.next_offset
            for record in found.records:
                yield record
