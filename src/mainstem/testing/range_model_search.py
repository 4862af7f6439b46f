"""A walk through every state of a world, the near ones first, until an oracle is offended.

Breadth first: the course that is found is a shortest one. States that differ only in the names of
replicas are visited once; the course is told with names that hold from its first step to its last.
"""

from collections import deque

from msgspec import Struct

from mainstem.testing.range_model import (
    Bounds,
    Oracle,
    Rules,
    State,
    canonical,
    first,
    violation,
)
from mainstem.testing.range_model_steps import Steps

# Beyond this a world is too large to be called checked.
STATES_MAX = 2_500_000


class Outcome(Struct, frozen=True):
    """What a search found: nothing, or an oracle and the shortest course that offends it."""

    states: int
    violation: Oracle | None = None
    course: tuple[str, ...] = ()


def search(bounds: Bounds, rules: Rules, states_max: int = STATES_MAX) -> Outcome:
    """Visit every state that the rules can lead to."""
    steps = Steps(bounds, rules)
    beginning = canonical(first(bounds))
    before: dict[State, State | None] = {beginning: None}
    waiting = deque([beginning])
    while waiting:
        state = waiting.popleft()
        for _, reached in steps.after(state):
            following = canonical(reached)
            if following in before:
                continue
            before[following] = state
            offended = violation(following, bounds)
            if offended is not None:
                offended = _named(offended, state)
                return Outcome(len(before), offended, _course(steps, before, following, bounds))
            waiting.append(following)
        assert len(before) <= states_max, f"more than {states_max} states: make the world smaller"
    return Outcome(len(before))


def _named(offended: Oracle, before: State) -> Oracle:
    """Records that were acknowledged after the seal have their own name."""
    if offended is Oracle.ACKED_LOST and before.sealed:
        return Oracle.ACK_BEYOND_SEAL
    return offended


def _course(
    steps: Steps, before: dict[State, State | None], last: State, bounds: Bounds
) -> tuple[str, ...]:
    """Walk to ``last`` once more without renaming replicas on the way."""
    path: list[State] = []
    at: State | None = last
    while at is not None:
        path.append(at)
        at = before[at]
    path.reverse()
    state = first(bounds)
    told = []
    for wanted in path[1:]:
        label, state = next(s for s in steps.after(state) if canonical(s[1]) == wanted)
        told.append(label)
    return tuple(told)
