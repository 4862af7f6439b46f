"""Buckets, Kafka's precedence of entities, connection rates."""

import pytest
from tests.kit.clock import ManualClock

from mainstem.model.errors import InvalidRequest
from mainstem.security.quotas import (
    ADDRESS,
    CLIENT,
    CONNECTIONS,
    FETCH_BYTES,
    PRODUCE_BYTES,
    REQUESTS,
    THROTTLE_MS_MAX,
    USER,
    Entity,
    QuotaEntry,
    Quotas,
    check_limits,
    entity_of,
)

PRECEDENCE: list[list[tuple[str, str | None]]] = [
    [(USER, "u"), (CLIENT, "c")],
    [(USER, "u"), (CLIENT, None)],
    [(USER, "u")],
    [(USER, None), (CLIENT, "c")],
    [(USER, None), (CLIENT, None)],
    [(USER, None)],
    [(CLIENT, "c")],
    [(CLIENT, None)],
]


def quotas(*entries: tuple[list[tuple[str, str | None]], dict[str, float]]) -> Quotas:
    made = Quotas(ManualClock())
    made.load(QuotaEntry(entity_of(parts), limits) for parts, limits in entries)
    return made


def test_without_limits_nothing_is_throttled() -> None:
    meter = quotas().meter("u", "c", "1.2.3.4")
    assert meter.charge(PRODUCE_BYTES, 1e12) == 0


def test_who_sends_twice_the_rate_waits_for_the_excess() -> None:
    clock = ManualClock()
    made = Quotas(clock)
    made.load([QuotaEntry(entity_of([(USER, "u")]), {PRODUCE_BYTES: 1000.0})])
    meter = made.meter("u", "c", "h")
    assert meter.charge(PRODUCE_BYTES, 1000) == 0
    assert meter.charge(PRODUCE_BYTES, 500) == 500
    clock.now_s += 0.5
    assert meter.charge(PRODUCE_BYTES, 0) == 0
    clock.now_s += 100
    assert meter.charge(PRODUCE_BYTES, 1500) == 500, "idle time is saved for one second only"


def test_the_wait_has_a_bound() -> None:
    meter = quotas(([(USER, "u")], {PRODUCE_BYTES: 1.0})).meter("u", "c", "h")
    assert meter.charge(PRODUCE_BYTES, 1e9) == THROTTLE_MS_MAX


@pytest.mark.parametrize("at", range(len(PRECEDENCE)))
def test_the_most_specific_entity_decides(at: int) -> None:
    # Entity number i allows 100 * (i + 1) bytes; all from the chosen one on exist.
    entries = [
        (parts, {PRODUCE_BYTES: 100.0 * (number + 1)})
        for number, parts in enumerate(PRECEDENCE)
        if number >= at
    ]
    meter = quotas(*entries).meter("u", "c", "h")
    rate = 100 * (at + 1)
    assert meter.charge(PRODUCE_BYTES, 2 * rate) == 1000


def test_a_default_is_counted_for_each_user_apart() -> None:
    made = quotas(([(USER, None)], {FETCH_BYTES: 100.0}))
    assert made.meter("a", "c", "h").charge(FETCH_BYTES, 200) == 1000
    assert made.meter("b", "c", "h").charge(FETCH_BYTES, 100) == 0


def test_connections_of_one_user_share_the_limit() -> None:
    made = quotas(([(USER, "a")], {REQUESTS: 10.0}))
    first, second = made.meter("a", "x", "h1"), made.meter("a", "y", "h2")
    assert first.charge(REQUESTS, 10) == 0
    assert second.charge(REQUESTS, 1) == 100


def test_an_address_limits_besides_the_user() -> None:
    made = quotas(([(USER, "a")], {PRODUCE_BYTES: 1e6}), ([(ADDRESS, "h")], {PRODUCE_BYTES: 100.0}))
    assert made.meter("a", "c", "h").charge(PRODUCE_BYTES, 200) == 1000
    assert made.meter("a", "c", "elsewhere").charge(PRODUCE_BYTES, 200) == 0


def test_a_changed_limit_counts_for_connections_that_are_there() -> None:
    made = quotas(([(USER, "a")], {PRODUCE_BYTES: 100.0}))
    meter = made.meter("a", "c", "h")
    assert meter.charge(PRODUCE_BYTES, 200) == 1000
    made.load([])
    assert meter.charge(PRODUCE_BYTES, 10_000) == 0


def test_an_address_that_connects_too_often_is_refused_for_a_while() -> None:
    clock = ManualClock()
    made = Quotas(clock)
    assert [made.connection_refused("h", 2) for _ in range(3)] == [False, False, True]
    assert not made.connection_refused("other", 2)
    clock.now_s += 30
    assert [made.connection_refused("h", 2) for _ in range(2)] == [False, True]
    assert not made.connection_refused("h", None), "no limit, no refusal"


def test_a_limit_of_connections_that_was_set_holds_instead_of_the_default() -> None:
    made = quotas(([(ADDRESS, "h")], {CONNECTIONS: 0.5}))
    assert [made.connection_refused("h", 100) for _ in range(2)] == [False, True]
    assert [made.connection_refused("h", None) for _ in range(2)] == [True, True]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("user", "a"), ("user", "b")],
        [("ip", "h"), ("user", "a")],
        [("group", "g")],
        [("user", "")],
        [("client-id", "x" * 5000)],
    ],
)
def test_entities_that_do_not_go_together_are_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(InvalidRequest):
        entity_of(parts)


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        (((USER, "a"),), {"nonsense": 1.0}),
        (((USER, "a"),), {CONNECTIONS: 1.0}),
        (((ADDRESS, "h"),), {"controller_mutation_rate": 1.0}),
        (((USER, "a"),), {PRODUCE_BYTES: 0.0}),
        (((USER, "a"),), {PRODUCE_BYTES: -5.0}),
        (((USER, "a"),), {PRODUCE_BYTES: float("nan")}),
        (((USER, "a"),), {PRODUCE_BYTES: float("inf")}),
    ],
)
def test_limits_that_make_no_sense_are_refused(entity: Entity, limits: dict[str, float]) -> None:
    with pytest.raises(InvalidRequest):
        check_limits(entity, limits)
