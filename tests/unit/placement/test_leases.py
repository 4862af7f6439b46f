"""Leases: who is taken for dead, and when a node may rely on its own."""

from mainstem.model.ids import NodeId
from mainstem.placement.planning.leases import FAST, NORMAL, LeaseTable, OwnLease

ONE, TWO = NodeId(1), NodeId(2)


def walked(table: LeaseTable, start: int, until: int, *alive: NodeId) -> dict[NodeId, int]:
    """Time passes in small steps while some nodes renew; when each other was found lapsed."""
    found: dict[NodeId, int] = {}
    for now in range(start, until, 100):
        for node in alive:
            table.renew(node, now)
        for node in table.lapsed((ONE, TWO), now):
            found.setdefault(node, now)
    return found


def test_a_node_that_does_not_renew_lapses_after_its_lease() -> None:
    table = LeaseTable(NORMAL)
    table.begin((ONE, TWO), 0)
    assert walked(table, 0, 3_000, ONE) == {TWO: 1_500}


def test_the_fast_preset_finds_it_sooner() -> None:
    table = LeaseTable(FAST)
    table.begin((ONE, TWO), 0)
    assert walked(table, 0, 3_000, ONE) == {TWO: 500}


def test_a_new_leader_grants_everybody_one_lease() -> None:
    table = LeaseTable(NORMAL)
    table.begin((ONE, TWO), 0)
    walked(table, 0, 1_400, ONE)
    table.begin((ONE, TWO), 1_400)
    assert walked(table, 1_400, 5_000, ONE) == {TWO: 2_900}


def test_the_leader_before_has_been_waited_for_already() -> None:
    table = LeaseTable(NORMAL)
    table.begin((ONE, TWO), 0, former=TWO)
    assert walked(table, 0, 5_000, ONE) == {TWO: 500}


def test_a_node_that_was_never_seen_has_a_first_lease() -> None:
    table = LeaseTable(NORMAL)
    table.begin((ONE,), 0)
    assert walked(table, 100, 5_000, ONE) == {TWO: 1_600}


def test_a_leader_that_was_away_declares_nobody_dead_for_it() -> None:
    table = LeaseTable(NORMAL)
    table.begin((ONE, TWO), 0)
    walked(table, 0, 1_000, ONE, TWO)
    assert table.lapsed((ONE, TWO), 60_000) == []
    assert walked(table, 60_100, 65_000, ONE)[TWO] <= 61_600


def test_a_forgotten_node_starts_over() -> None:
    table = LeaseTable(NORMAL)
    table.begin((ONE, TWO), 0)
    table.forget(TWO)
    assert walked(table, 1_000, 5_000, ONE) == {TWO: 2_500}


def test_an_own_lease_counts_from_when_it_was_asked_for() -> None:
    lease = OwnLease()
    assert not lease.holds(0)
    lease.granted(asked_ms=100, lease_ms=1_500)
    assert lease.holds(1_599)
    assert not lease.holds(1_600)


def test_a_late_answer_does_not_shorten_a_lease_and_an_end_ends_it() -> None:
    lease = OwnLease()
    lease.granted(asked_ms=400, lease_ms=1_500)
    lease.granted(asked_ms=100, lease_ms=1_500)
    assert lease.holds(1_899)
    lease.end()
    assert not lease.holds(0)
