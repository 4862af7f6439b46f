"""Quotas: never more than the rate and one burst allow, and nobody starves."""

import math

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.kit.clock import ManualClock

from mainstem.security.quotas import (
    ADDRESS,
    BURST_S,
    CLIENT,
    CONNECTIONS,
    PRODUCE_BYTES,
    THROTTLE_MS_MAX,
    USER,
    Entity,
    QuotaBucket,
    QuotaEntry,
    Quotas,
    entity_of,
)

RATES = st.floats(0.01, 1e9)
BURSTS = st.floats(0.01, 1e9)
AMOUNTS = st.floats(0, 1e8)
GAPS = st.floats(0, 1_000)
CLOSE = 1e-6


def check_every_window(
    taken: list[tuple[float, float]], rate: float, burst: float, *, last_counts: bool
) -> None:
    """From any moment to any later one: no more than what one burst and the rate allow."""
    for first, (start, _) in enumerate(taken):
        total = 0.0
        for now, amount in taken[first:]:
            before, total = total, total + amount
            seen = total if last_counts else before
            rounded = rate * 2 * math.ulp(now)  # moments are no finer than that
            assert seen <= (burst + rate * (now - start)) * (1 + CLOSE) + CLOSE + rounded


@given(RATES, BURSTS, st.lists(st.tuples(AMOUNTS, GAPS), max_size=20))
@example(439475045.0, 0.0625, [(0.0, 64.0), (1.0, 0.0), (0.0, 0.0)])
def test_who_waits_as_told_takes_no_more_than_the_rate_one_burst_and_his_last_bite(
    rate: float, burst: float, course: list[tuple[float, float]]
) -> None:
    now = 0.0
    bucket = QuotaBucket(rate, burst, now)
    taken: list[tuple[float, float]] = []
    for amount, gap in course:
        taken.append((now, amount))
        now += bucket.charge(amount, now) + gap
    check_every_window(taken, rate, burst, last_counts=False)


@given(RATES, BURSTS, st.lists(st.tuples(AMOUNTS, GAPS), max_size=20))
def test_what_is_let_in_or_refused_is_never_more_than_the_rate_and_one_burst(
    rate: float, burst: float, course: list[tuple[float, float]]
) -> None:
    now = 0.0
    bucket = QuotaBucket(rate, burst, now)
    taken: list[tuple[float, float]] = []
    for amount, gap in course:
        if not bucket.refuses(amount, now):
            taken.append((now, amount))
        now += gap
    check_every_window(taken, rate, burst, last_counts=True)


@given(RATES, BURSTS, st.lists(st.tuples(AMOUNTS, GAPS), max_size=20), st.floats(0, 1))
@example(0.01, 1.0, [(71798693.0, 0.0), (100000000.0, 0.0)], 2.225073858507e-311)
def test_nobody_starves(
    rate: float, burst: float, course: list[tuple[float, float]], share: float
) -> None:
    now = 0.0
    bucket = QuotaBucket(rate, burst, now)
    for amount, gap in course:
        wait_s = bucket.charge(amount, now)
        assert wait_s >= 0
        now += gap
    left_s = bucket.charge(0, now)
    assert math.isfinite(left_s)
    now += left_s
    rounded_s = bucket.charge(0, now)
    assert rounded_s <= CLOSE * (1 + left_s)
    now += rounded_s + 2 * math.ulp(now)  # moments are no finer than that
    now += burst * share / rate * (1 + CLOSE) + CLOSE
    assert not bucket.refuses(burst * share * (1 - CLOSE), now)


@given(RATES, st.lists(AMOUNTS, min_size=1, max_size=30))
def test_who_stays_below_the_rate_never_waits(rate: float, shares: list[float]) -> None:
    now = 0.0
    bucket = QuotaBucket(rate, rate * BURST_S, now)
    most = max(*shares, 1.0)
    for share in shares:
        amount = share / most * rate
        assert bucket.charge(amount, now) <= CLOSE
        now += amount / rate


NAMES = st.sampled_from(["a", "b"])
MAYBE = st.none() | NAMES


@st.composite
def entries(draw: st.DrawFn) -> list[QuotaEntry]:
    made: dict[Entity, QuotaEntry] = {}
    for _ in range(draw(st.integers(0, 8))):
        shape = draw(st.sampled_from([(USER,), (CLIENT,), (USER, CLIENT), (ADDRESS,)]))
        entity = entity_of((kind, draw(MAYBE)) for kind in shape)
        made[entity] = QuotaEntry(entity, {PRODUCE_BYTES: draw(st.floats(1, 1e6))})
    return list(made.values())


def expected_rates(made: list[QuotaEntry], user: str, client: str, address: str) -> list[float]:
    """Kafka's order of precedence, as its manual lists it, and an address besides."""
    rates = {entry.entity: entry.limits[PRODUCE_BYTES] for entry in made}
    order: list[dict[str, str | None]] = [
        {USER: user, CLIENT: client},
        {USER: user, CLIENT: None},
        {USER: user},
        {USER: None, CLIENT: client},
        {USER: None, CLIENT: None},
        {USER: None},
        {CLIENT: client},
        {CLIENT: None},
    ]
    found = []
    of_address: list[dict[str, str | None]] = [{ADDRESS: address}, {ADDRESS: None}]
    for places in (order, of_address):
        hits = [rates[e] for place in places if (e := entity_of(place.items())) in rates]
        found += hits[:1]
    return found


@settings(max_examples=300)
@given(entries(), NAMES, NAMES, NAMES, st.floats(0, 1e7))
def test_the_limits_that_hold_are_those_of_kafkas_order(
    made: list[QuotaEntry], user: str, client: str, address: str, amount: float
) -> None:
    quotas = Quotas(ManualClock())
    quotas.load(made)
    rates = expected_rates(made, user, client, address)
    waits = [max(0.0, (amount - rate * BURST_S) / rate) for rate in rates]
    expected_ms = min(THROTTLE_MS_MAX, max(waits, default=0.0) * 1000)
    told_ms = quotas.meter(user, client, address).charge(PRODUCE_BYTES, amount)
    assert abs(told_ms - expected_ms) <= 1


@given(
    st.floats(1, 1e6),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 10), st.booleans()), max_size=20),
)
def test_looking_at_the_limits_again_gives_no_second_burst(
    rate: float, course: list[tuple[float, float, bool]]
) -> None:
    clocks = ManualClock(), ManualClock()
    limit = [QuotaEntry(entity_of([(USER, "a")]), {PRODUCE_BYTES: rate})]
    quotas = [Quotas(clock) for clock in clocks]
    for each in quotas:
        each.load(limit)
    meters = [each.meter("a", "c", "h") for each in quotas]
    for amount, gap_s, again in course:
        if again:
            quotas[1].load(limit)
            meters[1] = quotas[1].meter("a", "c", "h")
        assert meters[0].charge(PRODUCE_BYTES, amount) == meters[1].charge(PRODUCE_BYTES, amount)
        for clock in clocks:
            clock.now_s += gap_s


@given(st.integers(1, 1_000), st.lists(st.floats(0, 5), max_size=200))
def test_connections_of_one_address_are_bounded_and_others_do_not_pay(
    per_minute: int, gaps_s: list[float]
) -> None:
    clock = ManualClock()
    quotas = Quotas(clock)
    start, let_in = clock.now_s, 0
    for gap_s in gaps_s:
        clock.now_s += gap_s
        let_in += not quotas.connection_refused("10.0.0.1", per_minute)
        assert let_in <= per_minute + (clock.now_s - start) * per_minute / 60 + CLOSE
    assert not quotas.connection_refused("10.0.0.2", per_minute)
    quotas.load([QuotaEntry(entity_of([(ADDRESS, "10.0.0.3")]), {CONNECTIONS: 1.0})])
    assert not quotas.connection_refused("10.0.0.3", per_minute)
    assert quotas.connection_refused("10.0.0.3", per_minute)
