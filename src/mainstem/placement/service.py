"""Runs the catalogue: decides commands in order, makes their facts durable, replays them, answers.

    submit ─┐
    submit ─┼─▶ decide all ──▶ one append (one fsync) ──▶ replay + tell listeners ──▶ answer all
    submit ─┘

While one append is in flight further commands gather for the next. The catalogue shows durable
facts only; commands that share an append are decided on a copy that is ahead of it. All that is
asked of the journal is ``append(entries)``, which returns once they are committed: a Raft group can
take its place.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.decisions import Decision
from mainstem.placement.fact import Command
from mainstem.placement.reading import read_fact, read_state
from mainstem.placement.records import AnyFact
from mainstem.placement.storage import Stored

ReplyT = TypeVar("ReplyT")

COMMANDS_WAITING_MAX = 10_000
COMMANDS_PER_APPEND_MAX = 1_000

Listener = Callable[[AnyFact], None]
Waiting = tuple[Command[Any], asyncio.Future[Any]]

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
        self._waiting: deque[Waiting] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._closed = False

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
        if self._closed:
            raise Unavailable(ErrorCode.SHUTTING_DOWN, "the catalogue is closed")
        if len(self._waiting) >= COMMANDS_WAITING_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, f"{len(self._waiting)} commands are waiting")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ReplyT] = loop.create_future()
        self._waiting.append((command, answer))
        if self._worker is None:
            self._worker = loop.create_task(self._work())
            self._worker.add_done_callback(self._worked)
        return await answer

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
                count = min(len(self._waiting), COMMANDS_PER_APPEND_MAX)
                await self._run([self._waiting.popleft() for _ in range(count)])
                if self._journal.snapshot_due:
                    await self._journal.snapshot(_encode(self.catalogue.state()))
        finally:
            # Not in the callback: a command submitted before that runs needs a new worker.
            self._worker = None

    def _worked(self, worker: asyncio.Task[None]) -> None:
        if worker.cancelled():
            self._stop(asyncio.CancelledError("the catalogue's worker was cancelled"))
        elif (error := worker.exception()) is not None:
            self._stop(error)

    async def _run(self, commands: list[Waiting]) -> None:
        try:
            outcomes = self._decide(commands)
            decided = [outcome for _, outcome in outcomes if isinstance(outcome, Decision)]
            facts = [fact for decision in decided for fact in decision.facts]
            if facts:
                await self._record(facts)
            for answer, outcome in outcomes:
                _settle(answer, outcome)
        except Unavailable as refusal:  # nothing was recorded, nothing has changed
            for _, answer in commands:
                _settle(answer, refusal)
        finally:
            for _, answer in commands:
                _settle(answer, Unavailable(ErrorCode.STORAGE_FAILED, "the catalogue has failed"))

    async def _record(self, facts: Sequence[AnyFact]) -> None:
        """Make facts durable and take them in."""
        await self._journal.append([_encode(fact) for fact in facts])
        for fact in facts:
            self._take(fact)

    def _take(self, fact: AnyFact) -> None:
        """A fact is durable: the catalogue has it from now on, and whoever listens."""
        self.catalogue.replay(fact)
        for listener in tuple(self._listeners):
            listener(fact)

    def _decide(
        self, commands: list[Waiting]
    ) -> list[tuple[asyncio.Future[Any], Decision[Any] | MainstemError]]:
        now_ms = self._clock.wall_ms()
        # One command needs no copy to be decided on, and mostly there is one.
        ahead = self.catalogue.fork() if len(commands) > 1 else self.catalogue
        outcomes: list[tuple[asyncio.Future[Any], Decision[Any] | MainstemError]] = []
        for command, answer in commands:
            try:
                decision = ahead.decide(command, now_ms)
            except MainstemError as refusal:
                outcomes.append((answer, refusal))
                continue
            outcomes.append((answer, decision))
            if ahead is not self.catalogue:
                for fact in decision.facts:
                    ahead.replay(fact)
        return outcomes

    def _stop(self, error: BaseException) -> None:
        """What is durable and what is shown may differ from now on, so the node must go."""
        self._closed = True
        while self._waiting:
            _, answer = self._waiting.popleft()
            _settle(answer, Unavailable(ErrorCode.SHUTTING_DOWN, "the catalogue has failed"))
        _log.error("the catalogue failed: %s", error)
        self._on_fatal(error)


def _settle(answer: asyncio.Future[Any], outcome: Decision[Any] | MainstemError) -> None:
    if answer.done():  # the caller gave up
        return
    if isinstance(outcome, MainstemError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome.reply)
