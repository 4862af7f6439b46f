"""The catalogue of a cluster: the leader of a Raft group decides, all nodes replay.

    submit here ──▶ not the leader ──▶ ask the leader ──▶ wait until its facts are replayed here
                └─▶ the leader: decide ──▶ propose facts ──▶ committed, replayed on all nodes

The guarantees of ``PlacementService`` hold on every node: when a call returns, the facts are in the
catalogue of the node that was called. A leader decides only on a state that nothing else can
change: it has replayed everything before its term, has applied all that its own log holds, and
proposes in its term or not at all. Before it refuses, a majority confirms that it still leads.
While an entry of its own is neither applied nor replaced, commands wait, and are refused when
they time out: nothing was recorded then.

A command is sent under one id however often it is tried, and decided once (``remembering``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar
from uuid import uuid4

import msgspec

from mainstem.cluster.peers.error_codec import Unreachable
from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.cluster.raft.drivers.pending_driver import OutcomeUnknown
from mainstem.cluster.raft.messages import NO_NODE
from mainstem.model.clock import Clock
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import NodeId
from mainstem.placement.catalogue_replay import CatalogueReplay, Listener
from mainstem.placement.changes import commands, replication_commands, security_commands
from mainstem.placement.changes.command_and_fact import Command, reply_type
from mainstem.placement.changes.commands import AnyFact, CatalogueState
from mainstem.placement.changes.deduplication import can_be_repeated
from mainstem.placement.command_queue_driver import PendingCommand
from mainstem.placement.decision_driver import DecisionDriver
from mainstem.placement.state.catalogue import Catalogue
from mainstem.placement.state.decoding import read_fact, read_state

ReplyT = TypeVar("ReplyT")
# Forwards a command to a node, which decides it within so many seconds.
Ask = Callable[[NodeId, bytes, float], Awaitable[bytes | memoryview]]

SUBMIT_TIMEOUT_S: Final = 10.0
ATTEMPT_TIMEOUT_S: Final = 3.0
"""After so long without an answer a command that may be repeated is sent again."""
LEADER_PAUSE_S: Final = 0.05

# Another attempt would not help: this node is stopping, or overloaded.
_FINAL: Final = frozenset({ErrorCode.OVERLOADED, ErrorCode.SHUTTING_DOWN, ErrorCode.STORAGE_FAILED})
_encode = msgspec.json.Encoder().encode
_COMMANDS: Final[dict[str, type[Command[Any]]]] = {
    kind.__name__: kind
    for module in (commands, replication_commands, security_commands)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Command) and kind is not Command
}


class _Asked(msgspec.Struct, frozen=True, array_like=True):
    """A command sent to the leader, which is to decide it within so many seconds."""

    kind: str
    command: msgspec.Raw
    id: str = ""
    within_s: float = SUBMIT_TIMEOUT_S


class _Answered(msgspec.Struct, frozen=True, array_like=True):
    """The leader's reply, and the index up to which the log has to be replayed to see it."""

    index: int
    reply: msgspec.Raw


_asked = msgspec.msgpack.Decoder(_Asked)
_answered = msgspec.msgpack.Decoder(_Answered)


class RaftPlacementService:
    """The placement service on one node of several; also the state machine of Raft.

    ``attach`` sets the driver of this node's member of the group, which every call needs.

    Args:
        catalogue: the catalogue of this node; changed by replay only.
        clock: the clock.
        on_fatal: the catalogue failed and the node must stop.
        ask: forwards a command to another node.
        on_restored: called when a snapshot of another node replaced the catalogue.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
        *,
        ask: Ask,
        on_restored: Callable[[], None] = lambda: None,
    ) -> None:
        self.catalogue = catalogue
        self._ask = ask
        self._on_restored = on_restored
        self._driver: RaftDriver
        self.replay = CatalogueReplay(catalogue, clock)
        self._recorder = _RaftRecorder()
        self._decisions = DecisionDriver(catalogue, self._recorder, clock, on_fatal)

    def attach(self, driver: RaftDriver) -> None:
        """The member of the group that this node runs."""
        self._driver = driver
        self._recorder.attach(driver)

    @property
    def next_index(self) -> int:
        """The next index of the group's log to be replayed here."""
        return self._driver.state.log.applied + 1

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See ``PlacementService``."""
        return self.replay.subscribe(listener)

    def check(self, command: Command[ReplyT]) -> ReplyT:
        """See ``PlacementService``."""
        return self.replay.check(command)

    async def submit(self, command: Command[ReplyT]) -> ReplyT:
        """As ``PlacementService.submit``, on the current leader.

        A command whose outcome is unknown is tried again under the same id, where the cluster's
        feature level allows that, until the time is over.

        Raises:
            NotLeader, Unreachable: no leader was found in time; nothing was recorded.
            Unavailable: it may or may not have been recorded, unless the cause rules one out:
                read the state before repeating it.
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + SUBMIT_TIMEOUT_S
        command_id = uuid4().hex
        unknown: Unavailable | None = None
        while True:
            # As known before it is sent: what was decided at a lower level was not remembered.
            is_remembered = can_be_repeated(self.catalogue, command)
            try:
                return await self._try(command, command_id, give_up - loop.time())
            except (NotLeader, Unreachable) as refusal:
                # Nothing was recorded this time; the current leader is soon known here.
                last: Unavailable = refusal
            except Unavailable as refusal:
                if self._decisions.is_closed or refusal.code in _FINAL:
                    raise unknown or refusal from None
                if not is_remembered:
                    raise
                last = unknown = refusal
            left_s = give_up - LEADER_PAUSE_S - loop.time()
            if left_s <= 0:
                raise unknown or last
            if self._driver.state.lead == NO_NODE:
                await self._driver.until_led(left_s)
            else:
                await asyncio.sleep(LEADER_PAUSE_S)

    async def _try(self, command: Command[ReplyT], command_id: str, timeout_s: float) -> ReplyT:
        """Have a command decided by the current leader."""
        state = self._driver.state
        if state.is_leader:
            pending = PendingCommand(command, command_id, self._recorder.term)
            reply: ReplyT = await self._decisions.decided(pending, timeout_s)
            return reply
        if state.lead == NO_NODE:
            raise NotLeader(NO_NODE, "the catalogue's group has no leader")
        if can_be_repeated(self.catalogue, command):
            timeout_s = min(timeout_s, ATTEMPT_TIMEOUT_S)
        return await self._submit_to(state.lead, command, command_id, timeout_s)

    async def confirm(self, timeout_s: float) -> None:
        """As ``PlacementService.confirm``: a majority of voters confirms the leader."""
        await self._driver.read_barrier(timeout_s)

    async def close(self) -> None:
        """Finish what was submitted, then refuse."""
        await self._decisions.close()

    async def decide_for(self, data: bytes | memoryview) -> bytes:
        """Decide a command that another node forwarded to this one.

        Raises:
            NotLeader: this node does not lead.
            MainstemError: the command was refused.
        """
        try:
            asked = _asked.decode(data)
            command = msgspec.msgpack.decode(asked.command, type=_COMMANDS[asked.kind])
        except (*DECODE_ERRORS, KeyError) as error:
            raise Corrupt(f"not a command for the catalogue: {error}") from error
        if self._decisions.is_closed:
            raise NotLeader(NO_NODE, "the leader is stopping")
        pending = PendingCommand(command, asked.id, self._recorder.term)
        try:
            reply = await self._decisions.decided(pending, min(asked.within_s, SUBMIT_TIMEOUT_S))
        except Unavailable as error:
            if error.code is not ErrorCode.SHUTTING_DOWN:
                raise
            # The stop of this node is no outcome for a node that continues.
            raise OutcomeUnknown("the leader stopped while it decided") from error
        index = self._driver.state.log.applied
        return msgspec.msgpack.encode(_Answered(index, msgspec.Raw(msgspec.msgpack.encode(reply))))

    # Raft callbacks.

    def apply(self, index: int, data: bytes) -> None:
        """Facts are committed."""
        del index
        for line in data.split(b"\n"):
            self.replay.take(read_fact(line, "the catalogue"))

    def snapshot(self) -> Callable[[], bytes]:
        """The state as it is now, encoded later."""
        state = self.catalogue.state()
        return lambda: _encode(state)

    def restore(self, state: bytes) -> None:
        """Replace this node's state by another node's."""
        self.catalogue.become(read_state(state, "the catalogue") if state else CatalogueState())
        self._on_restored()

    # Inside.

    async def _submit_to(
        self, leader: NodeId, command: Command[ReplyT], command_id: str, timeout_s: float
    ) -> ReplyT:
        kind = type(command)
        raw = msgspec.Raw(msgspec.msgpack.encode(command))
        question = msgspec.msgpack.encode(_Asked(kind.__name__, raw, command_id, timeout_s))
        try:
            answer = await self._ask(leader, question, timeout_s)
        except Unavailable as refusal:
            # Between nodes a refusal keeps its code, not its class.
            if refusal.code is not ErrorCode.NOT_COORDINATOR:
                raise
            raise NotLeader(NO_NODE, refusal.cause) from refusal
        answered = _answered.decode(answer)
        await self._replayed(answered.index, timeout_s)
        reply: ReplyT = msgspec.msgpack.decode(answered.reply, type=reply_type(kind))
        return reply

    async def _replayed(self, index: int, timeout_s: float) -> None:
        """Wait until this node has replayed what the leader has."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._driver.state.log.applied < index:
                    await self._driver.read_barrier(timeout_s)
        except TimeoutError:
            cause = f"decided, but not replayed here in {timeout_s:.3g} s"
            raise Unavailable(ErrorCode.TIMED_OUT, cause) from None


class _RaftRecorder:
    """Facts in the log of a Raft group, which takes its own snapshots."""

    def __init__(self) -> None:
        self._driver: RaftDriver
        self._led_term = -1

    def attach(self, driver: RaftDriver) -> None:
        """The member of the group that this node runs."""
        self._driver = driver

    @property
    def term(self) -> int | None:
        """The term that this node leads."""
        return self._driver.state.led_term

    async def is_settled(self) -> bool:
        """Whether this node leads and knows the outcome of all its proposals.

        An entry that was not committed in time may still be: a decision without it would
        be based on a state that may never have existed.
        """
        await self._lead()
        log = self._driver.state.log
        return log.applied == log.last_index

    async def _lead(self) -> None:
        """Ensure that this node decides on everything that was decided before its term."""
        state = self._driver.state
        term = state.led_term
        if term is None:
            raise NotLeader(state.lead)
        if term != self._led_term:
            await self._driver.read_barrier(SUBMIT_TIMEOUT_S)
            if state.term != term:
                raise NotLeader(state.lead)
            self._led_term = term

    async def confirm_decided(self) -> None:
        """A leader that was replaced without noticing must not refuse.

        Its state may be behind what others have acknowledged since. Facts need no such
        confirmation: they are committed in the term in which they were decided, or not at all.
        """
        state = self._driver.state
        try:
            await self._driver.read_barrier(ATTEMPT_TIMEOUT_S)
        except Unavailable as error:
            if error.code is not ErrorCode.TIMED_OUT:
                raise
            cause = "no majority confirmed that this node still leads; nothing was recorded"
            raise NotLeader(NO_NODE, cause) from error
        if state.led_term != self._led_term:
            raise NotLeader(state.lead, "leadership has changed; nothing was recorded")

    async def record(self, facts: Sequence[AnyFact]) -> None:
        """Propose the facts; when this returns, ``apply`` has replayed them here."""
        data = b"\n".join(_encode(fact) for fact in facts)
        await self._driver.propose(data, term=self._led_term)

    async def snapshot_if_due(self) -> None:
        """Nothing to do: Raft takes its own snapshots."""
