"""Runs the catalogue: decides commands in order, makes their facts durable, replays them, answers.

    submit ─┐
    submit ─┼─▶ decide all ──▶ one append (one fsync) ──▶ replay + tell listeners ──▶ answer all
    submit ─┘

While one append is in flight further commands gather for the next. The catalogue shows durable
facts only; commands that share an append are decided on a copy that is ahead of it. All that is
asked of the journal is ``append(entries)``, which returns once they are committed: a Raft group can
take its place.

Nothing is decided while the outcome of an append is unknown: a journal that fails ends the node,
and the leader of a group waits (``group_service``).
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import COMMANDS_PER_APPEND_MAX
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.commands_driver import CommandQueue, PendingCommand
from mainstem.placement.decisions import Decision
from mainstem.placement.fact import Command
from mainstem.placement.reading import read_fact, read_state
from mainstem.placement.records import AnyFact
from mainstem.placement.remembering import remember, remembered_reply
from mainstem.placement.storage import Stored

ReplyT = TypeVar("ReplyT")

IGNORED_LOG_INTERVAL_S = 60.0

Listener = Callable[[AnyFact], None]
Outcome = Decision[Any] | MainstemError

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class Journal(Protocol):
    """Where facts become durable."""

    @property
    def snapshot_due(self) -> bool:
        """Whether a snapshot is worth its while."""
        ...

    @property
    def next_index(self) -> int:
        """The number of the append that comes next; it only grows, over restarts too."""
        ...

    async def append(self, entries: Sequence[bytes]) -> None:
        """Return once the entries are committed, all or none."""
        ...

    async def snapshot(self, state: bytes) -> None:
        """Let ``state`` stand for everything appended so far."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


def replayed(stored: Stored, subject: str) -> Catalogue:
    """The catalogue that a journal, named by ``subject``, holds.

    Raises:
        UnknownVersion: it holds something that this release does not know.
    """
    catalogue = Catalogue(read_state(stored.snapshot, subject) if stored.snapshot else None)
    for frame in stored.frames:
        for line in frame.split(b"\n"):
            catalogue.replay(read_fact(line, subject))
    if catalogue.ignored:
        _log.warning("facts in the journal no longer applied: %s", dict(catalogue.ignored))
    return catalogue


class PlacementService:
    """The door to the catalogue. Look-ups go to ``catalogue``, changes through ``submit``."""

    def __init__(
        self,
        journal: Journal,
        catalogue: Catalogue,
        clock: Clock,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self.catalogue = catalogue
        self._journal = journal
        self._clock = clock
        self._on_fatal = on_fatal
        self._listeners: list[Listener] = []
        self._waiting = CommandQueue()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False
        self._ignored_logged_s = float("-inf")

    @property
    def next_index(self) -> int:
        """How many appends there ever were, and one more."""
        return self._journal.next_index

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every fact once it is durable and replayed; how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def check(self, command: Command[ReplyT]) -> ReplyT:
        """What ``submit`` would answer now, without doing it. Raises the same refusals."""
        return self.catalogue.decide(command, self._clock.wall_ms()).reply

    async def submit(self, command: Command[ReplyT]) -> ReplyT:
        """Decide a command; the reply, once its facts are durable and every listener knows them.

        A caller that gives up waiting does not take the command back.
        """
        reply: ReplyT = await self._decided(PendingCommand(command, "", None))
        return reply

    async def _decided(self, pending: PendingCommand, timeout_s: float | None = None) -> Any:
        """The reply to a command that waits at most so long before it is decided."""
        if self._closed:
            raise Unavailable(ErrorCode.SHUTTING_DOWN, "the catalogue is closed")
        self._waiting.add(pending, timeout_s)
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
            self._worker.add_done_callback(self._worked)
        return await pending.answer

    async def confirm(self, timeout_s: float) -> None:
        """Return once it is certain that this node decides; a catalogue of its own it always does.

        Raises:
            Unavailable: nobody confirmed that in time.
        """

    async def close(self) -> None:
        """Finish what was submitted, then refuse."""
        self._closed = True
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)
        self._journal.close()

    async def _work(self) -> None:
        try:
            while self._waiting:
                if not await self._may_decide():
                    continue
                commands = self._waiting.take(COMMANDS_PER_APPEND_MAX, self._term)
                if commands:
                    await self._run(commands)
                if self._journal.snapshot_due:
                    await self._journal.snapshot(_encode(self.catalogue.state()))
        finally:
            # Not in the callback: a command submitted before that runs needs a new worker.
            self._worker = None

    @property
    def _term(self) -> int | None:
        """The term in which this node decides; None: it is the only one."""
        return None

    async def _may_decide(self) -> bool:
        """Whether the catalogue holds the outcome of everything that was decided before."""
        return True

    def _worked(self, worker: asyncio.Task[None]) -> None:
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
                await self._record(facts)
            for pending, outcome in zip(commands, outcomes, strict=True):
                _settle(pending, outcome)
        except Unavailable as refusal:  # it says whether anything was recorded
            for pending in commands:
                pending.refuse(refusal)
        finally:
            for pending in commands:
                pending.refuse(Unavailable(ErrorCode.STORAGE_FAILED, "the catalogue has failed"))

    async def _record(self, facts: Sequence[AnyFact]) -> None:
        """Make facts durable and take them in."""
        await self._journal.append([_encode(fact) for fact in facts])
        for fact in facts:
            self._take(fact)

    def _take(self, fact: AnyFact) -> None:
        """Replay a durable fact and tell the listeners, unless it no longer applies."""
        if not self.catalogue.replay(fact):
            self._log_ignored(fact)
            return
        for listener in tuple(self._listeners):
            listener(fact)

    def _log_ignored(self, fact: AnyFact) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._ignored_logged_s >= IGNORED_LOG_INTERVAL_S:
            self._ignored_logged_s = now_s
            _log.warning(
                "a recorded %s no longer applies and was ignored; ignored so far: %s",
                type(fact).__name__,
                dict(self.catalogue.ignored),
            )

    def _decide(self, commands: list[PendingCommand]) -> list[Outcome]:
        now_ms = self._clock.wall_ms()
        # One command needs no copy to be decided on, and mostly there is one.
        ahead = self.catalogue.fork() if len(commands) > 1 else self.catalogue
        outcomes: list[Outcome] = []
        for pending in commands:
            try:
                decision = _decided_once(ahead, pending, now_ms)
            except MainstemError as refusal:
                outcomes.append(refusal)
                continue
            outcomes.append(decision)
            if ahead is not self.catalogue:
                for fact in decision.facts:
                    ahead.replay(fact)
        return outcomes

    def _stop(self, error: BaseException) -> None:
        """What is durable and what is shown may differ from now on, so the node must go."""
        self._closed = True
        self._waiting.refuse_all(Unavailable(ErrorCode.SHUTTING_DOWN, "the catalogue has failed"))
        _log.error("the catalogue failed: %s", error)
        self._on_fatal(error)


def _decided_once(catalogue: Catalogue, pending: PendingCommand, now_ms: int) -> Decision[Any]:
    """The decision on a command, or the reply that was given when it was decided before."""
    known = catalogue.decided.get(pending.id)
    if known is not None:
        return Decision((), remembered_reply(catalogue, pending.command, known))
    decision = catalogue.decide(pending.command, now_ms)
    if decision.facts:
        fact = remember(catalogue, pending.command, pending.id, decision.reply)
        if fact is not None:
            return Decision((*decision.facts, fact), decision.reply)
    return decision


def _settle(pending: PendingCommand, outcome: Outcome) -> None:
    if isinstance(outcome, MainstemError):
        pending.refuse(outcome)
    elif not pending.answer.done():  # otherwise the caller gave up
        pending.answer.set_result(outcome.reply)
