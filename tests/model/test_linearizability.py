"""Histories that can have happened, and histories that cannot."""

import math
from collections.abc import Callable

import pytest

from mainstem.testing.simulation import linearizability
from mainstem.testing.simulation.linearizability import TimedCommand as Op
from mainstem.testing.simulation.linearizability import Undecided, is_linearizable

Step = Callable[[int], list[int]]
FOREVER = math.inf


def write(value: int) -> Step:
    return lambda _: [value]


def read(value: int) -> Step:
    return lambda state: [state] if state == value else []


def swap(before: int, after: int) -> Step:
    return lambda state: [after] if state == before else []


def swap_failed(before: int) -> Step:
    return lambda state: [state] if state != before else []


def maybe_swap(before: int, after: int) -> Step:
    """An unknown outcome: it took effect if it could."""
    return lambda state: [after if state == before else state]


GOOD = {
    "nothing": [],
    "one after the other": [Op(0, 1, write(1)), Op(2, 3, read(1))],
    "a read beside a write sees what was before": [Op(0, 9, write(1)), Op(1, 2, read(0))],
    "a read beside a write sees what comes": [Op(0, 9, write(1)), Op(1, 2, read(1))],
    "two writes in the order that the reads tell": [
        Op(0, 9, write(1)), Op(0, 9, write(2)), Op(1, 3, read(2)), Op(4, 5, read(1)),
    ],
    "an unknown write takes effect late": [
        Op(0, FOREVER, write(1)), Op(1, 2, read(0)), Op(3, 4, read(1)),
    ],
    "an unknown write never takes effect": [Op(0, FOREVER, write(1)), Op(8, 9, read(0))],
    "a swap repeated after an unknown outcome fails because the first one counted": [
        Op(0, FOREVER, maybe_swap(0, 1)), Op(2, 3, swap_failed(0)), Op(4, 5, read(1)),
    ],
}  # fmt: skip

BAD = {
    "an answered write is not read": [Op(0, 1, write(1)), Op(2, 3, read(0))],
    "a read goes back": [
        Op(0, 9, write(1)), Op(1, 2, read(1)), Op(3, 4, read(0)),
    ],
    "two swaps of the same value": [Op(0, 5, swap(0, 1)), Op(0, 5, swap(0, 2))],
    "an unknown swap counts twice": [
        Op(0, FOREVER, maybe_swap(0, 1)), Op(2, 3, write(0)), Op(4, 5, read(1)),
        Op(6, 7, write(0)), Op(8, 9, read(1)),
    ],
    "an unknown write takes effect before it began": [
        Op(0, 1, read(1)), Op(2, FOREVER, write(1)),
    ],
    "a swap fails although it fits": [Op(0, 1, swap_failed(0))],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_history_that_can_have_happened_is_found_so(name: str) -> None:
    assert is_linearizable(GOOD[name], 0)


@pytest.mark.parametrize("name", BAD)
def test_a_history_that_cannot_have_happened_is_found_so(name: str) -> None:
    assert not is_linearizable(BAD[name], 0)


def test_a_long_history_with_many_unknown_outcomes_is_decided() -> None:
    history = [Op(2 * at, 2 * at + 3, write(at)) for at in range(200)]
    history += [Op(40 * at, FOREVER, write(-at)) for at in range(8)]

    assert is_linearizable(history, 0)


def test_a_history_with_too_many_orders_is_left_undecided(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(linearizability, "STEPS_MAX", 100)
    history = [Op(0, 9, write(at)) for at in range(12)] + [Op(10, 11, read(99))]

    with pytest.raises(Undecided):
        is_linearizable(history, 0)
