"""Whole clusters of gossiping nodes: news arrives, the dead are found, the living left alone."""

import msgspec
import pytest
from tests.unit.cluster.gossip.village import Village

from mainstem.cluster.gossip.member import About, Address, MemberState

ALIVE, SUSPECT, DEAD, LEFT = MemberState
SEEDS = [1, 2, 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_everybody_finds_everybody_through_one_node(seed: int) -> None:
    village = Village(50, seed=seed)
    village.join()
    village.run(10)
    for node in village.nodes:
        others = {other: ALIVE for other in village.nodes if other != node}
        assert village.view(node) == others


@pytest.mark.parametrize("seed", SEEDS)
def test_a_silent_node_is_dead_for_all_in_time(seed: int) -> None:
    village = Village(50, seed=seed)
    village.join()
    village.run(10)
    village.stop(7)
    village.run(60)
    assert village.states_of(7) == {DEAD}
    assert {node for _, _, node in village.deaths()} == {7}


def test_in_a_small_cluster_a_silent_node_is_dead_within_seconds() -> None:
    village = Village(3, seed=1)
    village.join()
    village.run(5)
    village.stop(3)
    village.run(12)
    assert village.states_of(3) == {DEAD}


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_taken_for_dead_though_a_third_of_the_packets_is_lost(seed: int) -> None:
    village = Village(50, seed=seed, loss=0.3)
    village.join()
    village.run(60)
    assert list(village.deaths()) == []


def test_a_node_that_hears_nothing_does_not_bury_the_others() -> None:
    village = Village(20, seed=4, cut=lambda sender, receiver, now: receiver == 5 and 10 < now < 25)
    village.join()
    village.run(60)
    buried = {node for _, by, node in village.deaths() if by != 5}
    assert buried <= {5}
    assert all(village.states_of(node) == {ALIVE} for node in village.nodes)


def test_two_nodes_that_cannot_hear_each_other_are_known_to_live_by_the_others() -> None:
    village = Village(10, seed=5, cut=lambda sender, receiver, now: {sender, receiver} == {2, 3})
    village.join()
    village.run(90)
    assert list(village.deaths()) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_both_halves_of_a_split_bury_each_other_and_meet_again(seed: int) -> None:
    village = Village(10, seed=seed, cut=lambda s, r, now: (s <= 5) != (r <= 5) and 10 < now < 60)
    village.join()
    village.run(59)
    assert village.states_of(9) >= {DEAD, ALIVE}
    village.run(90)
    for node in village.nodes:
        assert village.states_of(node) == {ALIVE}


def test_a_node_that_was_paused_comes_back() -> None:
    village = Village(10, seed=7)
    village.join()
    village.run(10)
    village.stop(4)
    village.run(40)
    assert village.states_of(4) == {DEAD}
    village.resume(4)
    village.run(15)
    assert village.states_of(4) == {ALIVE}
    assert set(village.view(4).values()) == {ALIVE}


def test_a_node_that_begins_again_outranks_what_was_said_of_its_last_life() -> None:
    village = Village(5, seed=8)
    village.join()
    village.run(10)
    village.stop(2)
    village.run(30)
    village.resume()
    village.stopped.discard(2)
    village.nodes[2] = village.new_node(2)
    village.exchange(2, 1)
    village.run(10)
    assert village.states_of(2) == {ALIVE}
    assert village.nodes[2].roster.own.incarnation > 0


def test_who_says_good_bye_is_not_suspected() -> None:
    village = Village(10, seed=9)
    village.join()
    village.run(10)
    village._carry_out(3, village.nodes[3].leave(village.now))
    village.run(3)
    village.stop(3)
    village.run(20)
    assert village.states_of(3) == {LEFT}
    assert {change.after.state for _, _, change in village.changes} == {ALIVE, LEFT}


def test_what_a_node_tells_of_itself_reaches_everybody() -> None:
    village = Village(20, seed=10)
    village.join()
    village.run(10)
    about = About(Address("127.0.0.1", 6), rack="b", load=(("bytes_in", 3.5),))
    village.nodes[6].roster.tell(about)
    village.run(5)
    for node in set(village.nodes) - {6}:
        member = village.nodes[node].roster.get(village.nodes[6].roster.own.node)
        assert member is not None
        assert member.claim.about == about


def test_a_slow_node_asks_less_often() -> None:
    village = Village(10, seed=11, cut=lambda s, r, now: 2 in (s, r) and now > 10)
    village.join()
    village.run(20)
    assert village.nodes[2].health > 0
    assert village.nodes[3].health == 0


def test_traffic_does_not_grow_with_what_is_known() -> None:
    """A quiet cluster asks once a second each and has nothing else to say."""
    village = Village(50, seed=12)
    village.join()
    village.run(60)
    before = village.sent
    village.run(30)
    per_node_second = (village.sent - before) / 50 / 30
    assert per_node_second == pytest.approx(2, abs=0.2)


def test_the_same_seed_plays_the_same_story() -> None:
    def story() -> bytes:
        village = Village(20, seed=13, loss=0.2)
        village.join()
        village.run(30)
        village.stop(5)
        village.run(30)
        return msgspec.msgpack.encode(
            [(at, by, change.after) for at, by, change in village.changes]
        )

    assert story() == story()
