"""Commands that wait to be decided, in order, each until its own deadline.

A command that is refused here was never decided: nothing was recorded.
"""

import asyncio
from collections import deque
from typing import Any

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.messages import NO_NODE
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.limits import COMMANDS_WAITING_MAX
from mainstem.placement.changes.command_and_fact import Command


class PendingCommand:
    """One command, and the future that its caller awaits.

    Attributes:
        id: the same for every attempt of its sender; empty: it is sent once.
        term: the term in which this node accepted it; it is decided in that term or not at all.
    """

    __slots__ = ("answer", "command", "id", "term", "timer")

    def __init__(self, command: Command[Any], command_id: str, term: int | None) -> None:
        self.command = command
        self.id = command_id
        self.term = term
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None

    def refuse(self, error: MainstemError) -> None:
        """Answer with an error, unless the caller has given up."""
        if not self.answer.done():
            self.answer.set_exception(error)


class CommandQueue:
    """Queues commands until they are decided or their deadline passes. Used on one event loop."""

    def __init__(self) -> None:
        self._waiting: deque[PendingCommand] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, pending: PendingCommand, timeout_s: float | None) -> None:
        """Queue a command, at most so long; None: until it is taken.

        Raises:
            Unavailable: too many wait already.
        """
        if len(self._waiting) >= COMMANDS_WAITING_MAX:
            raise Unavailable(
                ErrorCode.OVERLOADED,
                f"{len(self._waiting)} commands are waiting; nothing was recorded",
            )
        self._waiting.append(pending)
        if timeout_s is not None:
            loop = asyncio.get_running_loop()
            pending.timer = loop.call_later(timeout_s, self._expire, pending, timeout_s)

    def take(self, count: int, term: int | None) -> list[PendingCommand]:
        """The next commands whose callers still wait; those of another term are refused."""
        taken: list[PendingCommand] = []
        while self._waiting and len(taken) < count:
            pending = self._waiting.popleft()
            if pending.timer is not None:
                pending.timer.cancel()
            if pending.term != term:
                pending.refuse(NotLeader(NO_NODE, "leadership has changed; nothing was recorded"))
            elif not pending.answer.done():
                taken.append(pending)
        return taken

    def put_back(self, commands: list[PendingCommand]) -> None:
        """Put commands that were not decided back in front; they wait until they are taken."""
        self._waiting.extendleft(reversed(commands))

    def refuse_all(self, error: MainstemError) -> None:
        """Answer every waiting command with an error."""
        while self._waiting:
            pending = self._waiting.popleft()
            if pending.timer is not None:
                pending.timer.cancel()
            pending.refuse(error)

    def _expire(self, pending: PendingCommand, timeout_s: float) -> None:
        self._waiting.remove(pending)
        pending.refuse(
            Unavailable(
                ErrorCode.TIMED_OUT,
                f"the catalogue could not decide in {timeout_s:.3g} s; nothing was recorded",
                remedy="try again once a majority of the nodes can write",
            )
        )
