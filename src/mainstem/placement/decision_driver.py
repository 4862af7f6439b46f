"""Decides commands in order and records their facts in batches.

    submit ─┐
    submit ─┼─▶ decide all ──▶ one append (one fsync) ──▶ replay + notify ──▶ reply to all
    submit ─┘

While one append is in flight further commands gather for the next. The catalogue shows durable
facts only; commands that share an append are decided on a copy that is ahead of it. The recorder
reports when the outcome of an earlier append is unknown: nothing is decided until it is known.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.drivers.pending_driver import EntryTooLarge
from mainstem.cluster.raft.messages import NO_NODE
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import COMMANDS_PER_APPEND_MAX
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.changes.decisions import Decision
from mainstem.placement.changes.deduplication import deduplicated_reply, remember
from mainstem.placement.command_queue_driver import CommandQueue, PendingCommand
from mainstem.placement.state.catalogue import Catalogue

OUTCOME_PAUSE_S: Final = 0.05

CommandOutcome = Decision[Any] | MainstemError

_log = logging.getLogger(__name__)


class FactRecorder(Protocol):
    """Makes facts durable and replays them."""

    @property
    def term(self) -> int | None:
        """The term in which this node decides; None: it is the only node."""
        ...

    async def is_settled(self) -> bool:
        """Whether the catalogue holds the outcome of everything that was decided before.

        Raises:
            MainstemError: this node does not decide.
        """
        ...

    async def confirm_decided(self) -> None:
        """Confirm that a decision without facts was made on the current state."""
        ...

    async def record(self, facts: Sequence[AnyFact]) -> None:
        """Return once facts are durable and replayed here, all or none."""
        ...

    async def snapshot_if_due(self) -> None:
        """Replace what was recorded so far by a snapshot, if that is due."""
        ...


class DecisionDriver:
    """Runs the commands of one node. ``on_fatal``: the catalogue failed and the node must stop."""

    def __init__(
        self,
        catalogue: Catalogue,
        recorder: FactRecorder,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.is_closed = False
        self._catalogue = catalogue
        self._recorder = recorder
        self._clock = clock
        self._on_fatal = on_fatal
        self._waiting = CommandQueue()
        self._worker: asyncio.Task[None] | None = None
        self._single_commands_left = 0  # so many of the next commands are decided one by one

    async def decided(self, pending: PendingCommand, timeout_s: float | None = None) -> Any:
        """The reply to a command that waits at most so long before it is decided."""
        if self.is_closed:
            raise Unavailable(ErrorCode.SHUTTING_DOWN, "the catalogue is closed")
        self._waiting.add(pending, timeout_s)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
            self._worker.add_done_callback(self._on_worker_done)
        return await pending.answer

    async def close(self) -> None:
        """Finish what was submitted, then refuse."""
        self.is_closed = True
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._waiting:
                if not await self._may_decide():
                    continue
                count = 1 if self._single_commands_left else COMMANDS_PER_APPEND_MAX
                commands = self._waiting.take(count, self._recorder.term)
                self._single_commands_left = max(0, self._single_commands_left - 1)
                if commands:
                    await self._run(commands)
                await self._recorder.snapshot_if_due()
        finally:
            # Not in the callback: a command submitted before that runs needs a new worker.
            self._worker = None

    async def _may_decide(self) -> bool:
        """Whether to decide now; otherwise commands were refused, or some time has passed."""
        try:
            if await self._recorder.is_settled():
                return True
        except MainstemError as refusal:
            self._waiting.refuse_all(refusal)
            return False
        if self.is_closed:
            self._waiting.refuse_all(
                NotLeader(NO_NODE, "the leader is stopping; nothing was recorded")
            )
        else:
            await asyncio.sleep(OUTCOME_PAUSE_S)
        return False

    def _on_worker_done(self, worker: asyncio.Task[None]) -> None:
        if worker.cancelled():
            self._stop(asyncio.CancelledError("the catalogue's worker was cancelled"))
        elif (error := worker.exception()) is not None:
            self._stop(error)

    async def _run(self, commands: list[PendingCommand]) -> None:
        try:
            outcomes = self._decide(commands)
            decided = [outcome for outcome in outcomes if isinstance(outcome, Decision)]
            facts = [fact for decision in decided for fact in decision.facts]
            if facts:
                await self._recorder.record(facts)
            else:
                await self._recorder.confirm_decided()
            for pending, outcome in zip(commands, outcomes, strict=True):
                _settle(pending, outcome)
        except Unavailable as refusal:  # the error reports whether anything was recorded
            for pending in commands:
                pending.refuse(refusal)
        except EntryTooLarge as refusal:
            if len(commands) == 1:
                commands[0].refuse(refusal)
            else:
                self._single_commands_left = len(commands)
                self._waiting.put_back(commands)
                commands = []
        finally:
            for pending in commands:
                pending.refuse(Unavailable(ErrorCode.STORAGE_FAILED, "the catalogue has failed"))

    def _decide(self, commands: list[PendingCommand]) -> list[CommandOutcome]:
        now_ms = self._clock.wall_ms()
        # A single command, the usual case, needs no copy to be decided on.
        ahead = self._catalogue.fork() if len(commands) > 1 else self._catalogue
        outcomes: list[CommandOutcome] = []
        for pending in commands:
            try:
                decision = _decided_once(ahead, pending, now_ms)
            except MainstemError as refusal:
                outcomes.append(refusal)
                continue
            outcomes.append(decision)
            if ahead is not self._catalogue:
                for fact in decision.facts:
                    ahead.replay(fact)
        return outcomes

    def _stop(self, error: BaseException) -> None:
        """The durable state and the one in memory may differ from now on, so the node must stop."""
        self.is_closed = True
        self._waiting.refuse_all(Unavailable(ErrorCode.SHUTTING_DOWN, "the catalogue has failed"))
        _log.error("the catalogue failed: %s", error)
        self._on_fatal(error)


def _decided_once(catalogue: Catalogue, pending: PendingCommand, now_ms: int) -> Decision[Any]:
    """The decision on a command, or the first reply if it was decided before."""
    known = catalogue.decided.get(pending.id)
    if known is not None:
        return Decision((), deduplicated_reply(catalogue, pending.command, known))
    decision = catalogue.decide(pending.command, now_ms)
    if decision.facts:
        fact = remember(catalogue, pending.command, pending.id, decision.reply)
        if fact is not None:
            return Decision((*decision.facts, fact), decision.reply)
    return decision


def _settle(pending: PendingCommand, outcome: CommandOutcome) -> None:
    if isinstance(outcome, MainstemError):
        pending.refuse(outcome)
    elif not pending.answer.done():  # otherwise the caller gave up
        pending.answer.set_result(outcome.reply)
