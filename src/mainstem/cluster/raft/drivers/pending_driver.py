"""Pending calls: proposals that wait to be applied, and reads that wait to be safe."""

import asyncio
from collections import deque

from mainstem.cluster.raft.core import NotLeader, Raft
from mainstem.cluster.raft.messages import NO_NODE, Entry, EntryId
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.limits import RAFT_ENTRY_BYTES_MAX

WAITING_MAX = 10_000


class OutcomeUnknown(Unavailable):
    """A proposal may or may not be committed: read the state before repeating it."""

    def __init__(self, cause: str) -> None:
        super().__init__(
            ErrorCode.TIMED_OUT, cause, remedy="read the state before repeating the command"
        )


class EntryTooLarge(InvalidRequest):
    """A proposal is larger than a message between nodes may be; nothing was recorded."""

    def __init__(self, size_bytes: int, most_bytes: int) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"a change of {size_bytes} bytes exceeds the limit of {most_bytes}",
            remedy="split the request into smaller ones",
        )


class PendingProposals:
    """The proposals of this node, by their index in the log."""

    def __init__(self, timeout_s: float, entry_bytes_max: int = RAFT_ENTRY_BYTES_MAX) -> None:
        self._timeout_s = timeout_s
        self._entry_bytes_max = entry_bytes_max
        self._closed_by: MainstemError | None = None
        self._gathered: list[tuple[bytes, int | None, asyncio.Future[int]]] = []
        self._waiting: dict[int, tuple[int, asyncio.Future[int]]] = {}

    def refuse_if_closed(self) -> None:
        """Raise the error that stopped the node."""
        if self._closed_by is not None:
            raise self._closed_by

    def gather(self, data: bytes, term: int | None) -> asyncio.Future[int]:
        """Queue a proposal, for this term if one is given; queued proposals share one write."""
        if len(data) > self._entry_bytes_max:
            raise EntryTooLarge(len(data), self._entry_bytes_max)
        if len(self._gathered) >= WAITING_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, f"{len(self._gathered)} proposals wait")
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._gathered.append((data, term, answer))
        asyncio.get_running_loop().call_later(self._timeout_s, self._expire_gathered, answer)
        return answer

    def submit(self, core: Raft, now_s: float) -> None:
        """Take the queued proposals."""
        gathered = []
        for data, term, answer in self._gathered:
            if term is not None and term != core.state.term:
                # Leadership was lost, and perhaps won again, since the proposal was made.
                _settle(answer, NotLeader(core.state.lead))
            elif not answer.done():
                gathered.append((data, answer))
        self._gathered = []
        if not gathered:
            return
        try:
            last = core.propose([data for data, _ in gathered], now_s)
        except Unavailable as refusal:
            for _, answer in gathered:
                answer.set_exception(refusal)
            return
        first = last.index - len(gathered) + 1
        for place, (_, answer) in enumerate(gathered):
            self._wait(EntryId(first + place, last.term), answer)
        self._expire_later([EntryId(first + place, last.term) for place in range(len(gathered))])

    def expect(self, entry: EntryId) -> asyncio.Future[int]:
        """Done once this entry is applied."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._wait(entry, answer)
        self._expire_later([entry])
        return answer

    def _wait(self, entry: EntryId, answer: asyncio.Future[int]) -> None:
        replaced = self._waiting.pop(entry.index, None)
        if replaced is not None:
            # This node lost leadership and that part of its log, and leads again. Another node may
            # still have the entry of the older term, and may still commit it.
            _settle(replaced[1], OutcomeUnknown("the leader changed"))
        self._waiting[entry.index] = entry.term, answer

    def applied(self, entry: Entry) -> None:
        """An entry is applied: complete its proposal, or fail the one whose index it took."""
        waiting = self._waiting.pop(entry.index, None)
        if waiting is None:
            return
        term, answer = waiting
        if term == entry.term:
            _settle(answer, entry.index)
        else:
            _settle(answer, NotLeader(NO_NODE, "another leader's entry took the place"))

    def skipped_until(self, index: int) -> None:
        """A snapshot replaced all entries until ``index``; which they were is not known."""
        for place in [place for place in self._waiting if place <= index]:
            _, answer = self._waiting.pop(place)
            _settle(answer, OutcomeUnknown("this node was brought up to date by a snapshot"))

    def _expire_gathered(self, answer: asyncio.Future[int]) -> None:
        """Withdraw a proposal that was not passed to the core, because this node's disk is slow."""
        left = [waiting for waiting in self._gathered if waiting[2] is not answer]
        if len(left) == len(self._gathered):
            return
        self._gathered = left
        cause = "this node's log did not take the proposal in time; nothing was recorded"
        _settle(answer, Unavailable(ErrorCode.TIMED_OUT, cause, remedy="try again"))

    def _expire_later(self, entries: list[EntryId]) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(self._timeout_s, self._expire, entries)

    def _expire(self, entries: list[EntryId]) -> None:
        for entry in entries:
            waiting = self._waiting.get(entry.index)
            if waiting is not None and waiting[0] == entry.term:
                del self._waiting[entry.index]
                _settle(waiting[1], OutcomeUnknown("not committed in time"))

    def fail_all(self, error: MainstemError) -> None:
        """The node stops."""
        self._closed_by = error
        waiting = [answer for _, answer in self._waiting.values()]
        for answer in (*waiting, *(answer for _, _, answer in self._gathered)):
            _settle(answer, error)
        self._waiting.clear()
        self._gathered.clear()


class PendingReads:
    """Reads in rounds: those that arrive while a round is in flight share the next."""

    def __init__(self) -> None:
        self._gathering: asyncio.Future[int] | None = None
        self._asked: dict[int, asyncio.Future[int]] = {}
        self._applied: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._context = 0

    @property
    def is_gathering(self) -> bool:
        """Whether a round is waiting to be started."""
        return self._gathering is not None

    def join(self) -> asyncio.Future[int]:
        """The next round; its result is the index from which on a read is safe."""
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().create_future()
        return self._gathering

    async def safe_index(self, wake: asyncio.Event, retry_s: float) -> int:
        """The index from which on a read that starts now is safe."""
        while True:
            answer = self.join()
            wake.set()
            await asyncio.wait({answer}, timeout=retry_s)
            if answer.done():
                return answer.result()
            self.forget(answer)

    def begin(self) -> int:
        """Start the round that is waiting; its number."""
        assert self._gathering is not None, "no read is waiting"
        self._context += 1
        while len(self._asked) >= WAITING_MAX:  # rounds whose answer was lost
            self._asked.pop(next(iter(self._asked)))
        self._asked[self._context], self._gathering = self._gathering, None
        return self._context

    def answered(self, context: int, index: int) -> None:
        """A round was confirmed."""
        answer = self._asked.pop(context, None)
        if answer is not None and not answer.done():
            answer.set_result(index)

    def forget(self, answer: asyncio.Future[int]) -> None:
        """No read waits for this round any longer."""
        for context in [context for context, asked in self._asked.items() if asked is answer]:
            del self._asked[context]

    def when_applied(self, index: int) -> asyncio.Future[None]:
        """Done once everything until ``index`` is applied."""
        if len(self._applied) >= WAITING_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, f"{len(self._applied)} reads are waiting")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._applied.append((index, waiter))
        return waiter

    def applied(self, index: int) -> None:
        """Everything until ``index`` is applied."""
        still = deque[tuple[int, asyncio.Future[None]]]()
        for wanted, waiter in self._applied:
            if waiter.done():
                continue
            if wanted <= index:
                waiter.set_result(None)
            else:
                still.append((wanted, waiter))
        self._applied = still

    def fail_all(self, error: MainstemError) -> None:
        """The node stops."""
        rounds = [*self._asked.values(), *([self._gathering] if self._gathering else [])]
        for answer in rounds:
            _settle(answer, error)
            answer.exception()  # its caller may have given up
        for _, waiter in self._applied:
            if not waiter.done():
                waiter.set_exception(error)
        self._asked.clear()
        self._applied.clear()
        self._gathering = None


def _settle(answer: asyncio.Future[int], outcome: int | MainstemError) -> None:
    if answer.done():  # the caller gave up
        return
    if isinstance(outcome, MainstemError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
