"""Whether a history of concurrent commands on one object can have happened one after the other.

    start ───────────── end      took effect at one moment between the two; its answer fits
    start ──────────────────▶    nobody knows the outcome: at any moment after its start, or never

The search is that of Wing and Gong with the cache of Lowe: take any command that may have been the
next, see whether the object could have answered like that, and go back where it could not. A
history has few commands that overlap, so few orders are tried; ``STEPS_MAX`` bounds them all.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

STEPS_MAX: Final = 200_000

StateT = TypeVar("StateT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class TimedCommand(Generic[StateT]):
    """One command: from when to when, and what it does to the object.

    Attributes:
        start: when it was sent.
        end: when it was answered; ``math.inf``: its outcome is unknown.
        step: the states that the object can be in afterwards, if it could answer like that.
        text: what it was, for people.
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
    """There are more orders than can be tried."""


def is_linearizable(history: Sequence[TimedCommand[StateT]], state: StateT) -> bool:
    """Whether there is an order of the commands that explains every answer.

    Args:
        history: all commands on one object.
        state: what the object was before.

    Raises:
        Undecided: it is not known.
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
    """The commands that may come next: none that began after another one had been answered."""
    left = [place for place in range(len(commands)) if not done >> place & 1]
    first_end = min(commands[place].end for place in left)
    return [place for place in left if commands[place].start <= first_end]
