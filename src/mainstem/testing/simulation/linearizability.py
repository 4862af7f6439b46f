"""Linearizability check of a history of concurrent commands on one object.

    start ───────────── end      took effect at one moment between the two; its answer matches
    start ──────────────────▶    unknown outcome: at any moment after its start, or never

The search is that of Wing and Gong with the cache of Lowe: take any command that may have been the
next, check whether the object could have given its answer, and backtrack if not. A history has few
overlapping commands, so few orders are tried; ``STEPS_MAX`` limits them.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

STEPS_MAX: Final = 200_000

StateT = TypeVar("StateT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TimedCommand(Generic[StateT]):
    """One command: its interval, and its effect on the object.

    Attributes:
        start: when it was sent.
        end: when it was answered; ``math.inf`` if its outcome is unknown.
        step: returns the possible states of the object afterwards; none if it cannot answer so.
        text: description for messages.
    """

    start: float
    end: float
    step: Callable[[StateT], Iterable[StateT]]
    text: str = ""

    @property
    def is_known(self) -> bool:
        """Whether it was answered."""
        return self.end != math.inf


class Undecided(Exception):
    """The history has more orders than can be tried."""


def is_linearizable(history: Sequence[TimedCommand[StateT]], state: StateT) -> bool:
    """Whether there is an order of the commands that explains every answer.

    Args:
        history: all commands on one object.
        state: the initial state of the object.

    Raises:
        Undecided: the limit of steps was reached.
    """
    commands = sorted(history, key=lambda command: command.start)
    answered = sum(1 << place for place, command in enumerate(commands) if command.is_known)
    seen: set[tuple[int, StateT]] = set()
    waiting = [(0, state)]
    while waiting:
        done, state = waiting.pop()
        if done & answered == answered:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        if len(seen) > STEPS_MAX:
            raise Undecided
        for place in _next(commands, done):
            fits = commands[place].step(state)
            waiting += [(done | 1 << place, after) for after in fits]
    return False


def _next(commands: Sequence[TimedCommand[StateT]], done: int) -> list[int]:
    """The commands that may be next: those that started before any other one was answered."""
    left = [place for place in range(len(commands)) if not done >> place & 1]
    first_end = min(commands[place].end for place in left)
    return [place for place in left if commands[place].start <= first_end]
