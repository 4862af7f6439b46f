"""Reads all messages of a compacted internal topic, in order, at start."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from mainstem.broker.api.broker import Broker
from mainstem.model.errors import Corrupt
from mainstem.model.limits import KIB
from mainstem.model.message import Message
from mainstem.model.records.record import batches_of, records_of

_READ_BYTES: Final = 512 * KIB


async def stored_messages(broker: Broker, topic: str) -> AsyncIterator[Message]:
    """All messages of a topic, partition by partition; yields to the event loop between pieces.

    Raises:
        Corrupt: a batch is damaged.
        Unavailable: a partition has no writer now.
    """
    known = broker.topics.by_name(topic)
    for partition in range(0 if known is None else len(known.streams)):
        reader = await broker.streams.open_reader(topic, partition)
        offset, end = reader.start_offset, reader.last_stable
        while offset < end:
            piece = await reader.piece(offset, _READ_BYTES)
            if piece is None:
                break
            reached = offset
            for header, batch in batches_of(piece.data):
                for record in records_of(batch):
                    if record.offset >= offset:
                        yield Message.of_record(record)
                reached = header.until_offset
            if reached <= offset:
                raise Corrupt(f"no whole batch at offset {offset} of {topic}")
            offset = reached
            await asyncio.sleep(0)
