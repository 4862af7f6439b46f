"""Runs one Raft node: stores, then sends, then applies.

::

    propose ─┐                  ┌─▶ storage (one sync for all that gathered)
    receive ─┼─▶ core ─▶ Ready ─┤         │ durable
    timer  ──┘    │             ├─▶ messages_after_append ─▶ transport
                  │             └─▶ committed entries ─▶ machine.apply ─▶ waiting proposals
                  └─▶ messages that depend on nothing new are sent at once, also during a sync

Clock, random numbers, transport and storage are passed in, so that simulations run the same code. A
full disk makes this node step down and try again; any other failure of storage is final and
reported by ``on_fatal``: the node must stop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine

from mainstem.cluster.raft.core import NotLeader, Raft
from mainstem.cluster.raft.drivers.apply_driver import EntryApplier
from mainstem.cluster.raft.drivers.interfaces_driver import (
    DriverHooks,
    StateMachine,
    Storage,
    Transport,
)
from mainstem.cluster.raft.drivers.pending_driver import PendingProposals, PendingReads
from mainstem.cluster.raft.drivers.snapshot_driver import SnapshotTraffic
from mainstem.cluster.raft.messages import (
    NO_NODE,
    ConfChange,
    MessageType,
    RaftMessage,
    Ready,
    decode_message,
    encode_message,
)
from mainstem.cluster.raft.status import RaftStatus, status_of
from mainstem.model.clock import Clock
from mainstem.model.errors import STORAGE_RECOVERS, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NodeId

DISK_FULL_RETRY_S = 1.0

_log = logging.getLogger(__name__)


class RaftDriver:
    """Runs one Raft node: stores, then sends, then applies. Made and used on one event loop."""

    def __init__(
        self,
        core: Raft,
        storage: Storage,
        machine: StateMachine,
        transport: Transport,
        clock: Clock,
        hooks: DriverHooks,
    ) -> None:
        self._core = core
        self.state = core.state  # read-only for others; only the core changes it
        self._storage = storage
        self._transport = transport
        self._clock = clock
        self._hooks = hooks
        settings = hooks.settings
        self._proposals = PendingProposals(settings.proposal_timeout_s, settings.entry_bytes_max)
        self._reads = PendingReads()
        self._applying = EntryApplier(core, machine, hooks, self._proposals, self._reads)
        self._snapshots = SnapshotTraffic(
            core,
            storage,
            self._send,
            self._moved,
            clock,
            answer_timeout_s=hooks.settings.chunk_timeout_s,
        )
        self._wake = asyncio.Event()
        self._lead = NO_NODE  # as reported to callers that wait for a leader
        self._is_led = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_s = 0.0

        def failed(error: BaseException) -> None:
            self._shut(Unavailable(ErrorCode.STORAGE_FAILED, "this node's Raft storage failed"))
            hooks.on_fatal(error)

        self._tasks = _Tasks(failed)
        self._closed = False

    @property
    def status(self) -> RaftStatus:
        """This node's view of the group."""
        return status_of(self.state)

    def start(self, state: bytes) -> None:
        """Start; ``state`` is that of the snapshot which storage found."""
        self._applying.restore(self._core.state.log.snapshot, state)
        self._tasks.start(self._work())
        if self._core.conf_state.voters == (self._core.state.id,):
            self._core.campaign(self._clock.monotonic())  # no other voter to wait for
        self._moved()

    def receive(self, data: bytes | memoryview) -> None:
        """A message from another node has arrived.

        Raises:
            Corrupt: it is invalid; the connection is to be closed.
        """
        message = decode_message(data)
        if self._closed or message.to != self._core.state.id:
            return
        if message.type is MessageType.MsgSnapChunkResp:
            self._snapshots.sending.answered(message)
        elif message.type is MessageType.MsgSnapChunk:
            self._tasks.start(self._snapshots.chunk(message))
        elif message.type is not MessageType.MsgSnap:  # that type is made locally, from its chunks
            self._core.step(message, self._clock.monotonic())
            self._moved()

    def unreachable(self, node: NodeId, *, gone: bool = False) -> None:
        """The transport has lost messages to a node; ``gone``: since its process has ended."""
        if gone and not self._closed:
            self._core.report_unreachable(node, gone_s=self._clock.monotonic())
            self._moved()
        else:
            self._core.report_unreachable(node)

    async def propose(self, data: bytes, *, term: int | None = None) -> int:
        """Replicate ``data``; its index, once it is applied here.

        Args:
            data: what to replicate; not empty.
            term: if given, refuse unless this node leads in this very term.

        Raises:
            NotLeader: nothing was recorded, nor will be.
            OutcomeUnknown: it may or may not be committed.
            Unavailable: nothing was recorded; it may succeed later.
            EntryTooLarge: it is larger than a message between nodes may be.
        """
        assert data, "an entry without data is reserved for a new leader"
        self._proposals.refuse_if_closed()
        state = self._core.state
        if not state.is_leader or (term is not None and term != state.term):
            raise NotLeader(state.lead)
        answer = self._proposals.gather(data, term)
        self._wake.set()
        return await answer

    async def change_membership(self, change: ConfChange) -> int:
        """Add, promote, demote or remove one node; the index of the change, once it holds here.

        Raises:
            InvalidRequest: the change is not possible.
            Unavailable: as ``propose``, and while another change is under way.
        """
        self._proposals.refuse_if_closed()
        entry = self._core.propose_change(change, self._clock.monotonic())
        answer = self._proposals.expect(entry)
        self._moved()
        return await answer

    async def read_barrier(self, timeout_s: float) -> int:
        """Return once this node has applied everything that was committed before the call.

        Raises:
            Unavailable: no leader could confirm that in time.
        """
        self._proposals.refuse_if_closed()
        retry_s = self._core.state.settings.election_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                index = await self._reads.safe_index(self._wake, retry_s)
                if self._core.state.log.applied < index:
                    await self._reads.when_applied(index)
        except TimeoutError as error:
            raise Unavailable(ErrorCode.TIMED_OUT, "no leader has confirmed the read") from error
        return index

    async def until_led(self, timeout_s: float) -> None:
        """Return as soon as this node knows the leader, or when the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_led.wait()

    def transfer_leadership(self, to: NodeId) -> bool:
        """Transfer leadership to another voter; False if that is not possible."""
        begun = self._core.transfer_leadership(to, self._clock.monotonic())
        self._moved()
        return begun

    def campaign(self) -> None:
        """Campaign at once."""
        self._core.campaign(self._clock.monotonic())
        self._moved()

    async def close(self) -> None:
        """Stop; pending calls fail."""
        await asyncio.gather(*self.abandon(), return_exceptions=True)
        await self._storage.close()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Stop at once, as a crash would; the tasks that are still ending."""
        self._shut(Unavailable(ErrorCode.SHUTTING_DOWN, "the node stops"))
        tasks = [*self._tasks.running, *self._snapshots.sending.tasks]
        for task in tasks:
            task.cancel()
        return tasks

    async def _work(self) -> None:
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            if self._reads.is_gathering:
                self._core.read_index(self._reads.begin(), self._clock.monotonic())
            self._proposals.submit(self._core, self._clock.monotonic())
            while self._core.has_ready and not self._closed:
                await self._carry_out(self._core.ready())
                self._proposals.submit(self._core, self._clock.monotonic())
            if (snapshot := self._applying.snapshot(self._storage)) is not None:
                self._tasks.start(snapshot)

    async def _carry_out(self, ready: Ready) -> None:
        self._send(*ready.messages)
        state = await self._store(ready) if ready.must_sync else None
        if self._closed:
            return
        self._core.persisted(ready, self._clock.monotonic())
        self._send(*ready.messages_after_append)
        if ready.snapshot is not None:
            assert state is not None, "storage installed it"
            self._snapshots.receiving.finished()
            self._applying.restore(ready.snapshot, state)
        for entry in ready.committed_entries:
            self._applying.apply(entry)
        for read in ready.read_states:
            self._reads.answered(read.context, read.index)
        if ready.soft_state is not None:
            self._hooks.on_role(ready.soft_state)
        self._moved()

    async def _store(self, ready: Ready) -> bytes | None:
        incoming = self._snapshots.receiving.installed() if ready.snapshot is not None else None
        is_logged = False
        while True:
            try:
                state = await self._storage.save(ready.hard_state, ready.entries, incoming)
                if is_logged:
                    _log.warning("the Raft log is written again")
                return state  # noqa: TRY300 - the loop is left here only
            except Unavailable as error:
                if error.code not in STORAGE_RECOVERS:
                    raise
                if not is_logged:
                    _log.error("%s; this node does not lead meanwhile", error)
                is_logged = True
            self._core.step_down(self._clock.monotonic())
            self._moved()
            await asyncio.sleep(DISK_FULL_RETRY_S)

    def _moved(self) -> None:
        """The core has changed: send the messages that may leave, and schedule the rest."""
        if self._closed:
            return
        if self.state.lead != self._lead:
            self._lead = self.state.lead
            if self._lead == NO_NODE:
                self._is_led.clear()
            else:
                self._is_led.set()
        self._send(*self._core.take_messages())
        if self._core.has_ready:
            self._wake.set()
        wait_s = max(0.0, self._core.next_deadline_s - self._clock.monotonic())
        loop = asyncio.get_running_loop()
        due_s = loop.time() + wait_s
        if self._timer is not None:
            # A timer that fires too early costs less than a new one for every message.
            if self._timer_due_s <= due_s:
                return
            self._timer.cancel()
        # Kept here, since not every loop's timer knows when it is due.
        self._timer_due_s = due_s
        self._timer = loop.call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._core.tick(self._clock.monotonic())
        self._moved()

    def _send(self, *messages: RaftMessage) -> None:
        if self._closed:
            return
        for message in messages:
            if message.type is MessageType.MsgSnap:
                self._snapshots.sending.start(message)
            else:
                self._transport.send(message.to, encode_message(message))

    def _shut(self, error: MainstemError) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._proposals.fail_all(error)
        self._reads.fail_all(error)


class _Tasks:
    """Background tasks; a failure of any of them is reported."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self.running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Start a background task."""
        task = asyncio.get_running_loop().create_task(work)
        self.running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)
