"""Transfer of snapshots between two nodes, one chunk at a time.

    leader    MsgSnapChunk(position) ──▶  follower   writes it
              ◀── MsgSnapChunkResp(position of the next one)

A chunk that is not answered is sent again; a failed transfer is reported to the
core, which tries again later. The follower's core gets a snapshot when all of it has arrived
and is verified.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from mainstem.cluster.raft.core import Raft
from mainstem.cluster.raft.messages import MessageType, RaftMessage, SnapshotMeta
from mainstem.cluster.raft.persistence.snapshot_storage import IncomingSnapshot, OutgoingSnapshot
from mainstem.cluster.raft.progress import ProgressState
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt, MainstemError, Unavailable, UnknownVersion
from mainstem.model.ids import NodeId
from mainstem.model.limits import MIB

CHUNK_BYTES = 1 * MIB
ATTEMPTS_MAX = 10

_log = logging.getLogger(__name__)


class SnapshotFiles(Protocol):
    """The part of storage that snapshot transfer uses."""

    async def outgoing(self, meta: SnapshotMeta) -> OutgoingSnapshot | None:
        """A snapshot to be sent; None when a newer one has replaced it."""
        ...

    async def read(self, snapshot: OutgoingSnapshot, position: int, size: int) -> bytes:
        """Read a chunk of a snapshot."""
        ...

    async def incoming(self, meta: SnapshotMeta, total_bytes: int) -> IncomingSnapshot:
        """Reserve space for an announced snapshot."""
        ...

    async def receive(self, snapshot: IncomingSnapshot, data: bytes) -> None:
        """Write the next chunk of it."""
        ...


class SnapshotSending:
    """The snapshots that this node sends, at most one to each member."""

    def __init__(
        self,
        files: SnapshotFiles,
        send: Callable[[RaftMessage], None],
        done: Callable[[NodeId, bool], None],
        wanted: Callable[[NodeId], bool],
        *,
        answer_timeout_s: float,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._files = files
        self._send = send
        self._done = done
        self._wanted = wanted
        self._answer_timeout_s = answer_timeout_s
        self._chunk_bytes = chunk_bytes
        self._tasks: dict[NodeId, asyncio.Task[None]] = {}
        self._answers: dict[NodeId, asyncio.Future[int]] = {}

    def start(self, announced: RaftMessage) -> None:
        """Send a snapshot for the core; an earlier transfer to the same node is dropped."""
        if (task := self._tasks.get(announced.to)) is not None:
            task.cancel()
        task = asyncio.get_running_loop().create_task(self._run(announced))
        self._tasks[announced.to] = task

    def answered(self, message: RaftMessage) -> None:
        """A member has everything before this position."""
        answer = self._answers.get(message.from_)
        if answer is not None and not answer.done():
            answer.set_result(message.position)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The running transfers."""
        return list(self._tasks.values())

    async def _run(self, announced: RaftMessage) -> None:
        peer = announced.to
        arrived = False
        try:
            arrived = await self._stream(announced)
        except (OSError, MainstemError) as error:
            _log.warning("a snapshot for node %s could not be read: %s", peer, error)
        finally:
            if self._tasks.get(peer) is asyncio.current_task():
                del self._tasks[peer]
                self._done(peer, arrived)

    async def _stream(self, announced: RaftMessage) -> bool:
        assert announced.snapshot is not None, "made by the core"
        snapshot = await self._files.outgoing(announced.snapshot)
        if snapshot is None:
            return False
        try:
            position = 0
            while position < snapshot.total_bytes:
                data = await self._files.read(snapshot, position, self._chunk_bytes)
                chunk = RaftMessage(
                    MessageType.MsgSnapChunk,
                    announced.to,
                    announced.from_,
                    announced.term,
                    snapshot=announced.snapshot,
                    position=position,
                    total_bytes=snapshot.total_bytes,
                    data=data,
                )
                reached = await self._exchange(chunk, position + len(data))
                if reached is None:
                    return False
                position = reached
            return True
        finally:
            snapshot.close()

    async def _exchange(self, chunk: RaftMessage, wanted: int) -> int | None:
        """Send a chunk until it is answered; the next position, None when the transfer is over."""
        for _ in range(ATTEMPTS_MAX):
            if not self._wanted(chunk.to):
                return None
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self._answers[chunk.to] = answer
            self._send(chunk)
            await asyncio.wait({answer}, timeout=self._answer_timeout_s)
            if answer.done() and answer.result() in (0, wanted):
                return answer.result()  # 0: the follower has started over
        return None


class SnapshotReceiving:
    """The one snapshot that may be in transfer to this node."""

    def __init__(
        self,
        files: SnapshotFiles,
        send: Callable[[RaftMessage], None],
        arrived: Callable[[RaftMessage], bool],
    ) -> None:
        self._files = files
        self._send = send
        self._arrived = arrived
        self._incoming: IncomingSnapshot | None = None
        self._from: tuple[NodeId, int] | None = None
        self._installing = False
        self._busy = False

    def installed(self) -> IncomingSnapshot:
        """The snapshot that the core has accepted, for storage to install."""
        assert self._incoming is not None, "the core accepts what has arrived"
        return self._incoming

    def finished(self) -> None:
        """Storage has installed it."""
        self._drop()

    async def chunk(self, message: RaftMessage) -> None:
        """A chunk has arrived. Chunks that arrive while one is being written are sent again anyway.

        Raises:
            StorageFailed: it is unknown what the disk holds.
        """
        if self._busy or self._installing:
            return
        self._busy = True
        try:
            await self._take(message)
        except (Unavailable, Corrupt, UnknownVersion) as error:  # the leader tries again later
            _log.warning("a snapshot cannot be received: %s", error)
            self._drop()
        finally:
            self._busy = False

    async def _take(self, message: RaftMessage) -> None:
        assert message.snapshot is not None, "checked when it was decoded"
        source = (message.from_, message.term)
        incoming = self._incoming
        known = incoming is not None and incoming.meta == message.snapshot and self._from == source
        if not known or incoming is None:
            self._drop()
            if message.position:
                self._answer(message, 0)
                return
            incoming = await self._files.incoming(message.snapshot, message.total_bytes)
            self._incoming, self._from = incoming, source
        if message.position == incoming.received_bytes and not incoming.is_complete:
            if incoming.received_bytes + len(message.data) > incoming.total_bytes:
                self._drop()
                return
            await self._files.receive(incoming, message.data)
        self._answer(message, incoming.received_bytes)
        if incoming.is_complete:
            self._installing = self._arrived(message)
            if not self._installing:
                self._drop()

    def _answer(self, message: RaftMessage, position: int) -> None:
        kind = MessageType.MsgSnapChunkResp
        self._send(RaftMessage(kind, message.from_, message.to, message.term, position=position))

    def _drop(self) -> None:
        if self._incoming is not None:
            self._incoming.close()
        self._incoming = self._from = None
        self._installing = False


class SnapshotTraffic:
    """Both directions, between the core and the transport."""

    def __init__(
        self,
        core: Raft,
        files: SnapshotFiles,
        send: Callable[[RaftMessage], None],
        moved: Callable[[], None],
        clock: Clock,
        *,
        answer_timeout_s: float,
    ) -> None:
        self._core = core
        self._moved = moved
        self._clock = clock
        self.sending = SnapshotSending(
            files, send, self._sent, self._wanted, answer_timeout_s=answer_timeout_s
        )
        self.receiving = SnapshotReceiving(files, send, self._arrived)

    async def chunk(self, message: RaftMessage) -> None:
        """A chunk has arrived; one of an earlier term is answered like any other message of it."""
        if message.term < self._core.state.term:
            stale = msgspec.structs.replace(message, type=MessageType.MsgHeartbeat)
            self._core.step(stale, self._clock.monotonic())
            self._moved()
        else:
            await self.receiving.chunk(message)

    def _arrived(self, message: RaftMessage) -> bool:
        """Pass a snapshot to the core; whether it accepts it."""
        whole = msgspec.structs.replace(message, type=MessageType.MsgSnap, data=b"", position=0)
        self._core.step(whole, self._clock.monotonic())
        self._moved()
        return self._core.state.log.pending_snapshot == message.snapshot

    def _wanted(self, node: NodeId) -> bool:
        """Whether the member still waits for it; it may have caught up in another way."""
        progress = self._core.state.tracker.progress.get(node)
        waits = progress is not None and progress.state is ProgressState.StateSnapshot
        return self._core.state.is_leader and waits

    def _sent(self, node: NodeId, arrived: bool) -> None:  # noqa: FBT001 - a callback
        self._core.report_snapshot(node, arrived=arrived)
        self._moved()
