"""Breadth-first search of all states of a model, until an oracle is violated.

The trace that is found is a shortest one. States that differ only in the names of replicas are
visited once; the trace uses the same names from its first step to its last.
"""

from collections import deque

from msgspec import Struct
from tests.kit.range_checker.state import (
    Bounds,
    Oracle,
    RangeModelState,
    RangeRules,
    canonical,
    first,
    violation,
)
from tests.kit.range_checker.steps import ModelSteps

# A model with more states cannot be searched completely.
STATES_MAX = 2_500_000


class RangeSearchResult(Struct, frozen=True):
    """Result of a search: nothing, or a violated oracle and the shortest trace to it."""

    states: int
    violation: Oracle | None = None
    trace: tuple[str, ...] = ()


def search(bounds: Bounds, rules: RangeRules, states_max: int = STATES_MAX) -> RangeSearchResult:
    """Visit every state that the rules can lead to."""
    steps = ModelSteps(bounds, rules)
    beginning = canonical(first(bounds))
    before: dict[RangeModelState, RangeModelState | None] = {beginning: None}
    waiting = deque([beginning])
    while waiting:
        state = waiting.popleft()
        for _, reached in steps.after(state):
            following = canonical(reached)
            if following in before:
                continue
            before[following] = state
            violated = violation(following, bounds)
            if violated is not None:
                violated = _named(violated, state)
                return RangeSearchResult(
                    len(before), violated, _trace(steps, before, following, bounds)
                )
            waiting.append(following)
        assert len(before) <= states_max, f"more than {states_max} states: use smaller bounds"
    return RangeSearchResult(len(before))


def _named(violated: Oracle, before: RangeModelState) -> Oracle:
    """The oracle to report: records acknowledged after the seal have their own."""
    if violated is Oracle.ACKED_LOST and before.sealed:
        return Oracle.ACK_BEYOND_SEAL
    return violated


def _trace(
    steps: ModelSteps,
    before: dict[RangeModelState, RangeModelState | None],
    last: RangeModelState,
    bounds: Bounds,
) -> tuple[str, ...]:
    """Repeat the steps to ``last`` without renaming replicas."""
    path: list[RangeModelState] = []
    at: RangeModelState | None = last
    while at is not None:
        path.append(at)
        at = before[at]
    path.reverse()
    state = first(bounds)
    labels = []
    for wanted in path[1:]:
        label, state = next(s for s in steps.after(state) if canonical(s[1]) == wanted)
        labels.append(label)
    return tuple(labels)
