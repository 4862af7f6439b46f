"""Appends and reads at any node: done locally, or forwarded to the node that writes.

For protocols whose clients send a message to any node; Kafka clients find the writer by themselves.
Guarantees: what is forwarded is stored at most once. It is retried only if nothing was stored; if
that is unknown, the caller gets an error that says so. A read returns what the writer has; without
a writer for long, what this node's replica has.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from mainstem.broker.api.broker import PartitionReader, PartitionWriter, StableStreamReader, Streams
from mainstem.cluster.peers.error_codec import Unreachable
from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.peers.requests_service import PeerRequester
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId, Offset, StreamId, TopicId
from mainstem.node.clustering.remote_reader import (
    RemoteReader,
    RemoteReadRequest,
    answer_remote_read,
)
from mainstem.streams.reading.local_reader_driver import StreamPiece

WAIT_MAX_S: Final = 10.0
PAUSE_S: Final = 0.05
ASK_TIMEOUT_S: Final = 30.0
WAIT_MS_MAX: Final = 10_000


class _Head(msgspec.Struct, frozen=True, array_like=True):
    """The partition of a batch; the batch follows unchanged."""

    topic: str
    partition: int
    read: RemoteReadRequest | None = None  # instead of a batch


_heads = msgspec.msgpack.Decoder(_Head)
_LENGTH_BYTES: Final = 4


class _NothingStored(Exception):
    """Another node writes the partition, and nothing was stored."""


class ForwardingStreams:
    """The streams of this node, with appends for those of all nodes.

    Args:
        local: the streams that this node writes.
        node: this node.
        peers: sends requests to other nodes.
        writer_of: the node that writes a partition; refuses an unknown partition.
    """

    def __init__(
        self,
        local: Streams,
        node: NodeId,
        peers: PeerRequester,
        writer_of: Callable[[str, int], NodeId],
    ) -> None:
        self._local = local
        self._node = node
        self._peers = peers
        self._writer_of = writer_of
        # On the path of every produced batch, so they are bound without a wrapper.
        self.partition: Callable[[str, int], PartitionWriter] = local.partition
        self.partition_by_id: Callable[[TopicId, int], PartitionWriter] = local.partition_by_id
        self.flush: Callable[[], None] = local.flush
        self.reader: Callable[[str, int], PartitionReader] = local.reader
        self.reader_by_id: Callable[[TopicId, int], PartitionReader] = local.reader_by_id
        self.nearest: Callable[[StreamId, str, int], NodeId] = local.nearest
        self.stable_reader: Callable[[str, int], StableStreamReader] = local.stable_reader

    async def append(self, topic: str, partition: int, batch: bytearray) -> Offset:
        """Stage, flush and wait until committed, wherever the partition is written.

        Raises:
            Unavailable: it had no writer in time, or it is unknown whether it was stored.
            MainstemError: the writer's refusal.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + WAIT_MAX_S
        while True:
            writer = self._writer_of(topic, partition)
            try:
                if writer == self._node:
                    return await self._append_here(topic, partition, batch)
                if writer != NO_NODE:
                    return await self._append_at(writer, topic, partition, batch)
            except (_NothingStored, Unreachable):
                pass  # the new writer is soon known here
            if loop.time() > give_up:
                raise Unavailable(
                    ErrorCode.WRITER_UNAVAILABLE,
                    f"it had no writer for {WAIT_MAX_S:.0f} s",
                    subject=f"{topic}-{partition}",
                )
            await asyncio.sleep(PAUSE_S)

    async def open_reader(
        self, topic: str, partition: int, until: int | None = None
    ) -> StableStreamReader:
        """A reader of a stream: local, if it is written here or holds ``until``; or at its writer.

        Raises:
            Unavailable: it had no writer in time.
        """
        near = self._near(topic, partition)
        if near is not None and until is not None and until <= near.last_stable:
            return near
        loop = asyncio.get_running_loop()
        give_up = loop.time() + WAIT_MAX_S
        while True:
            writer = self._writer_of(topic, partition)
            try:
                if writer == self._node:
                    return await self._local.open_reader(topic, partition)
                if writer != NO_NODE:
                    return await RemoteReader(
                        partial(self._ask_writer, writer, topic, partition)
                    ).open()
            except MainstemError as error:
                if not isinstance(error, Unreachable) and error.code is not ErrorCode.NOT_WRITER:
                    raise
            if loop.time() > give_up:
                if near is not None:
                    return near
                raise Unavailable(
                    ErrorCode.WRITER_UNAVAILABLE,
                    f"it had no writer for {WAIT_MAX_S:.0f} s",
                    subject=f"{topic}-{partition}",
                )
            await asyncio.sleep(PAUSE_S)

    async def follow(
        self, topic: str, partition: int, offset: int, max_bytes: int, wait_ms: int
    ) -> tuple[StableStreamReader, StreamPiece | None]:
        """What another node's stream holds from ``offset`` on, and its bounds.

        If there is nothing yet, its writer waits up to ``wait_ms``.

        Raises:
            Unavailable: no other node writes it now.
        """
        writer = self._writer_of(topic, partition)
        if writer in (self._node, NO_NODE):
            raise Unavailable(ErrorCode.NOT_WRITER, "no other node writes it", subject=topic)
        remote = RemoteReader(partial(self._ask_writer, writer, topic, partition))
        return remote, await remote.next_piece(offset, max_bytes, wait_ms)

    def _near(self, topic: str, partition: int) -> StableStreamReader | None:
        try:
            return self._local.stable_reader(topic, partition)
        except MainstemError as error:
            if error.code is not ErrorCode.NOT_WRITER:
                raise
            return None

    async def _ask_writer(
        self, writer: NodeId, topic: str, partition: int, question: RemoteReadRequest
    ) -> memoryview:
        head = msgspec.msgpack.encode(_Head(topic, partition, question))
        chunks = [len(head).to_bytes(_LENGTH_BYTES), head]
        return await self._peers.ask(writer, PeerService.REQUESTS, chunks, timeout_s=ASK_TIMEOUT_S)

    async def delete_records(self, topic: str, partition: int, before: int) -> Offset:
        """Move the start of a stream that this node writes."""
        return await self._local.delete_records(topic, partition, before)

    def sizes(self, topic: str | None = None) -> Sequence[tuple[str, int, int]]:
        """(topic, partition, bytes on disk) of every stream held here, or of one topic's."""
        return self._local.sizes(topic)

    async def serve(self, _: NodeId, body: memoryview) -> Sequence[Chunk]:
        """Handle a forwarded append or read (``PeerService.REQUESTS``)."""
        length = int.from_bytes(body[:_LENGTH_BYTES])
        try:
            head = _heads.decode(body[_LENGTH_BYTES : _LENGTH_BYTES + length])
        except DECODE_ERRORS as error:
            raise Corrupt(f"malformed forwarded request: {error}") from error
        self._check_known(head)
        if head.read is not None:
            if head.read.wait_ms:
                await self._until_more(head.topic, head.partition, head.read)
            return await answer_remote_read(
                await self._local.open_reader(head.topic, head.partition), head.read
            )
        batch = bytearray(body[_LENGTH_BYTES + length :])
        try:
            base = await self._append_here(head.topic, head.partition, batch)
        except _NothingStored:
            raise Unavailable(ErrorCode.NOT_WRITER, "another node writes it") from None
        return [base.to_bytes(8)]

    def _check_known(self, head: _Head) -> None:
        """Refuse a topic not known here yet with a retriable error: the requester may be ahead."""
        try:
            self._local.partition(head.topic, head.partition)
        except MainstemError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC:
                return  # handled where the stream is used
            raise Unavailable(ErrorCode.NOT_WRITER, "the topic is not known here yet") from error

    async def _until_more(self, topic: str, partition: int, question: RemoteReadRequest) -> None:
        """Wait until there is a record at an offset, or the requested time is over."""
        writer = self._local.partition(topic, partition)
        moved = asyncio.Event()
        writer.add_waiter(moved.set)
        try:
            async with asyncio.timeout(min(question.wait_ms, WAIT_MS_MAX) / 1000):
                while writer.last_stable <= (question.offset or 0) and writer.closed is None:
                    await moved.wait()
                    moved.clear()
        except TimeoutError:
            pass
        finally:
            writer.remove_waiter(moved.set)

    async def _append_here(self, topic: str, partition: int, batch: bytearray) -> Offset:
        try:
            self._local.partition(topic, partition)
        except MainstemError as error:
            if error.code is ErrorCode.NOT_WRITER:
                raise _NothingStored from error
            raise
        try:
            return await self._local.append(topic, partition, batch)
        except MainstemError as error:
            if error.code is not ErrorCode.NOT_WRITER:
                raise
            # It was written here before another node took over, so it may have been stored.
            raise Unavailable(
                ErrorCode.TIMED_OUT, "its writer changed; it may be stored", subject=topic
            ) from error

    async def _append_at(
        self, writer: NodeId, topic: str, partition: int, batch: bytearray
    ) -> Offset:
        head = msgspec.msgpack.encode(_Head(topic, partition))
        chunks = [len(head).to_bytes(_LENGTH_BYTES), head, bytes(batch)]
        try:
            answer = await self._peers.ask(
                writer, PeerService.REQUESTS, chunks, timeout_s=ASK_TIMEOUT_S
            )
        except MainstemError as error:
            if error.code is ErrorCode.NOT_WRITER:
                raise _NothingStored from error
            raise
        return Offset(int.from_bytes(answer))
