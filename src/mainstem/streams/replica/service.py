"""Serves the replicas of ranges that this node holds to other nodes.

    note  batches ──▶ written ──▶ acknowledged or refused, by note
    ask   fence · batches of a recovery · batches to copy · the state where a range starts

A range is known from the catalogue. A writer may be ahead of this node's catalogue: what it sends
is kept for a moment, within a limit, until the range is known here. Guarantees: a node that has
another disk than the one a range was assigned to accepts nothing of it; requested bytes are
verified, or the request is refused.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.log.disk.file_access import storage_error
from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    InvalidRequest,
    StorageMayRefuse,
    Unavailable,
)
from mainstem.model.ids import Epoch, NodeId, Offset, RangeIndex, StreamId
from mainstem.model.limits import MIB
from mainstem.streams.context import StreamsContext
from mainstem.streams.failover.catalogue_freshness_driver import CatalogueFreshness
from mainstem.streams.replica import messages
from mainstem.streams.replica.driver import ReplicaNotification
from mainstem.streams.replica.folder_copy_driver import FolderCopyDriver
from mainstem.streams.replica.messages import RangeKey
from mainstem.streams.replica.registry import ReplicaRegistry
from mainstem.streams.replica.state_machine import (
    FenceAnswer,
    Refusal,
    ReplicaAck,
)

EARLY_BYTES_MAX: Final = 32 * MIB
EARLY_S: Final = 5.0
COPY_BYTES_MAX: Final = 4 * MIB

_log = logging.getLogger(__name__)

# Called for the writer of a stream on this node with the sender and its message.
WriterListener = Callable[[NodeId, messages.Acknowledged | messages.ReplicaRefused], None]


class ReplicaService:
    """Serves the replicas of this node to other nodes."""

    def __init__(self, context: StreamsContext) -> None:
        self._context = context
        self.registry = ReplicaRegistry(context, self._handle_early)
        self._writer_listeners: dict[StreamId, WriterListener] = {}
        self._early: dict[RangeKey, list[tuple[NodeId, memoryview]]] = {}
        self._early_bytes = 0
        self._early_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.folders = FolderCopyDriver(context)
        self.catalogue_freshness = CatalogueFreshness(context.placement, context.clock)
        # Called with the sealed range that is damaged here.
        self.on_damage: Callable[[StreamId, RangeIndex], None] = lambda _stream, _index: None

    def close(self) -> None:
        """Accept and answer nothing more."""
        self._is_closed = True
        self._drop_early()
        self.catalogue_freshness.close()

    def start(self) -> None:
        """Register the handlers for other nodes."""
        self._context.peers.serve(PeerService.RANGES, self._answer)
        self._context.peers.on_note(PeerService.RANGES, self._on_note)

    def listen(self, stream: StreamId, listener: WriterListener | None) -> None:
        """Pass the messages of replicas to the writer of a stream on this node; None: no writer."""
        if listener is None:
            self._writer_listeners.pop(stream, None)
        else:
            self._writer_listeners[stream] = listener

    # Notes.

    def _on_note(self, node: NodeId, body: memoryview) -> None:
        if self._is_closed:
            return
        try:
            with StorageMayRefuse(_log, "a replica cannot be opened now"):
                self._take(node, body)
        except Corrupt as error:
            # Nothing was written; the writer sends again what is not acknowledged.
            _log.warning("node %d sent an unusable message: %s", node, error)

    def _take(self, node: NodeId, body: memoryview) -> None:
        message, batches = messages.decode(body)
        match message:
            case messages.AppendBatches():
                self._append(node, message, batches, body)
            case messages.Acknowledged() | messages.ReplicaRefused():
                listener = self._writer_listeners.get(message.key.stream)
                if listener is not None:
                    listener(node, message)
            case _:
                raise Corrupt(f"{type(message).__name__} is not a note")

    def _append(
        self,
        node: NodeId,
        message: messages.AppendBatches,
        batches: memoryview,
        body: memoryview,
    ) -> None:
        registry = self.registry
        held = registry.find(message.key)
        if held is None:
            found = registry.range_of(message.key)
            if found is None:
                self._keep_early(node, message.key, body)
                return
            topic, stream, range_info = found
            if self._context.node not in range_info.replicas:
                return
            held = registry.hold(topic, stream, range_info)
        if not registry.is_this_disk(message.directory):
            return  # a blank disk has lost its promises: it must not start again
        if message.opening is not None and not held.log.segments:
            held.log.snapshot = message.opening
        held.append(
            message.epoch,
            (message.start, message.until),
            message.committed,
            batches,
            partial(self._send, node, message.key, message.epoch),
            to_disk=message.to_disk,
        )

    def _send(
        self, node: NodeId, key: RangeKey, epoch: Epoch, notification: ReplicaNotification
    ) -> None:
        message = _message_of(key, epoch, notification)
        if message is not None:
            self._context.peers.note(node, PeerService.RANGES, [messages.encode(message)])

    def _keep_early(self, node: NodeId, key: RangeKey, body: memoryview) -> None:
        """The writer knows a range that this node's catalogue does not list yet."""
        if self._early_bytes + len(body) > EARLY_BYTES_MAX:
            return  # it is sent again
        if self._early_timer is None:
            loop = asyncio.get_running_loop()
            self._early_timer = loop.call_later(EARLY_S, self._drop_early)
        self._early_bytes += len(body)
        self._early.setdefault(key, []).append((node, body))

    def _handle_early(self, key: RangeKey) -> None:
        for node, body in self._early.pop(key, ()):
            self._early_bytes -= len(body)
            self._on_note(node, body)

    def _drop_early(self) -> None:
        """What has waited too long is dropped; its writer, if there is one, sends it again."""
        if self._early_timer is not None:
            self._early_timer.cancel()
            self._early_timer = None
        self._early.clear()
        self._early_bytes = 0

    # Requests.

    async def _answer(self, node: NodeId, body: memoryview) -> Sequence[Chunk]:
        message, batches = messages.decode(body)
        if self._is_closed:
            raise Unavailable(ErrorCode.SHUTTING_DOWN, "the node is stopping")
        try:
            return await self._answered(node, message, batches)
        except FileNotFoundError as error:
            # What is copied from here may be dropped here at any moment.
            raise Unavailable(
                ErrorCode.WRITER_UNAVAILABLE, "the files were deleted", subject=str(error.filename)
            ) from error
        except OSError as error:
            raise storage_error(error, self._context.store.data_dir) from error

    async def _answered(
        self, node: NodeId, message: messages.AnyMessage, batches: memoryview
    ) -> Sequence[Chunk]:
        match message:
            case messages.AskFence():
                return [messages.encode(await self.fence(message))]
            case messages.AppendBatches():
                return [messages.encode(await self.store(message, batches))]
            case messages.AskBatches():
                return self._batches(message)
            case messages.AskState():
                topic, stream, range_info = self.registry.need_range(message.key)
                state = self.registry.state_before(topic, stream, range_info)
                return [messages.encode(messages.StateReply(message.key)), state]
            case _:
                answer = await self.folders.answer(message)
                if answer is None:
                    raise InvalidRequest(
                        ErrorCode.INVALID_REQUEST, f"node {node} sent {type(message).__name__}"
                    )
                return answer

    async def fence(self, asked: messages.AskFence) -> messages.Promised | messages.ReplicaRefused:
        """Promise a new writer's epoch and answer with the end of the range here."""
        topic, stream, range_info = self.registry.need_range(asked.key)
        if not self.registry.is_this_disk(asked.directory):
            own = self._context.store.directory_id.hex()
            return messages.Promised(
                asked.key, asked.epoch, range_info.start, limbo=False, directory=own
            )
        if range_info.end is not None:
            return messages.ReplicaRefused(asked.key, asked.epoch, sealed_at=range_info.end)
        answer = await self.registry.hold(topic, stream, range_info).fence(asked.epoch)
        if isinstance(answer, FenceAnswer):
            return messages.Promised(
                asked.key, answer.epoch, answer.end, limbo=answer.limbo, directory=answer.directory
            )
        return _refused(asked.key, asked.epoch, answer)

    async def store(
        self, message: messages.AppendBatches, batches: memoryview
    ) -> messages.Acknowledged | messages.ReplicaRefused:
        """Write the batches of a recovery to disk."""
        topic, stream, range_info = self.registry.need_range(message.key)
        if not self.registry.is_this_disk(message.directory):
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "the range is on another disk")
        held = self.registry.hold(topic, stream, range_info)
        if message.opening is not None and not held.log.segments:
            held.log.snapshot = message.opening
        notification = await held.store(message.epoch, message.start, message.until, batches)
        if isinstance(notification, ReplicaAck):
            return messages.Acknowledged(
                message.key, notification.epoch, notification.end, notification.synced
            )
        return _refused(message.key, message.epoch, notification)

    def _batches(self, asked: messages.AskBatches) -> Sequence[Chunk]:
        header, batches = self.read(asked)
        return [messages.encode(header), batches]

    def read(self, asked: messages.AskBatches) -> tuple[messages.BatchesReply, bytes]:
        """Batches of a range from the files of this node.

        Raises:
            MainstemError: they are not here, or damaged.
        """
        topic, stream, range_info = self.registry.need_range(asked.key)
        if range_info.generation != asked.generation:
            raise Unavailable(ErrorCode.TIMED_OUT, f"range {range_info.index} was rewritten")
        log = self.registry.log_of(topic, stream, range_info)
        size = min(asked.bytes_max, COPY_BYTES_MAX)
        try:
            part = log.read(asked.start, max_bytes=size, until=asked.until, min_one=True)
        except Corrupt:
            if range_info.end is not None:
                self.on_damage(stream.id, range_info.index)
            raise
        if part is None:
            return messages.BatchesReply(asked.key, asked.start, asked.start), b""
        span = (Offset(part.start_offset), Offset(part.until_offset))
        opening = log.opening_snapshot() if asked.start == range_info.start else None
        return messages.BatchesReply(asked.key, *span, opening), part.read()


def _message_of(
    key: RangeKey, epoch: Epoch, notification: ReplicaNotification
) -> messages.Acknowledged | messages.ReplicaRefused | None:
    if isinstance(notification, ReplicaAck):
        return messages.Acknowledged(key, notification.epoch, notification.end, notification.synced)
    return _refused(key, epoch, notification)


def _refused(key: RangeKey, epoch: Epoch, refusal: Refusal) -> messages.ReplicaRefused:
    return messages.ReplicaRefused(
        key,
        epoch,
        fenced_by=refusal.fenced_by,
        gap_at=refusal.gap_at,
        sealed_at=refusal.sealed_at,
    )
