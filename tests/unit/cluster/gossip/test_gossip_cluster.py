"""Whole clusters of gossiping nodes: news arrives, the dead are found, the living left alone."""

import msgspec
import pytest
from tests.unit.cluster.gossip.gossip_cluster import GossipCluster

from mainstem.cluster.gossip.member import Address, GossipState, SelfDescription

ALIVE, SUSPECT, DEAD, LEFT = GossipState
SEEDS = [1, 2, 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_everybody_finds_everybody_through_one_node(seed: int) -> None:
    cluster = GossipCluster(50, seed=seed)
    cluster.join()
    cluster.run(10)
    for node in cluster.nodes:
        others = {other: ALIVE for other in cluster.nodes if other != node}
        assert cluster.view(node) == others


@pytest.mark.parametrize("seed", SEEDS)
def test_a_silent_node_is_dead_for_all_in_time(seed: int) -> None:
    cluster = GossipCluster(50, seed=seed)
    cluster.join()
    cluster.run(10)
    cluster.stop(7)
    cluster.run(60)
    assert cluster.states_of(7) == {DEAD}
    assert {node for _, _, node in cluster.deaths()} == {7}


def test_in_a_small_cluster_a_silent_node_is_dead_within_seconds() -> None:
    cluster = GossipCluster(3, seed=1)
    cluster.join()
    cluster.run(5)
    cluster.stop(3)
    cluster.run(12)
    assert cluster.states_of(3) == {DEAD}


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_is_taken_for_dead_though_a_third_of_the_packets_is_lost(seed: int) -> None:
    cluster = GossipCluster(50, seed=seed, loss=0.3)
    cluster.join()
    cluster.run(60)
    assert list(cluster.deaths()) == []


def test_a_node_that_hears_nothing_does_not_bury_the_others() -> None:
    cluster = GossipCluster(
        20, seed=4, cut=lambda sender, receiver, now: receiver == 5 and 10 < now < 25
    )
    cluster.join()
    cluster.run(60)
    buried = {node for _, by, node in cluster.deaths() if by != 5}
    assert buried <= {5}
    assert all(cluster.states_of(node) == {ALIVE} for node in cluster.nodes)


def test_two_nodes_that_cannot_hear_each_other_are_known_to_live_by_the_others() -> None:
    cluster = GossipCluster(
        10, seed=5, cut=lambda sender, receiver, now: {sender, receiver} == {2, 3}
    )
    cluster.join()
    cluster.run(90)
    assert list(cluster.deaths()) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_both_halves_of_a_split_bury_each_other_and_meet_again(seed: int) -> None:
    cluster = GossipCluster(
        10, seed=seed, cut=lambda s, r, now: (s <= 5) != (r <= 5) and 10 < now < 60
    )
    cluster.join()
    cluster.run(59)
    assert cluster.states_of(9) >= {DEAD, ALIVE}
    cluster.run(90)
    for node in cluster.nodes:
        assert cluster.states_of(node) == {ALIVE}


def test_a_node_that_was_paused_comes_back() -> None:
    cluster = GossipCluster(10, seed=7)
    cluster.join()
    cluster.run(10)
    cluster.stop(4)
    cluster.run(40)
    assert cluster.states_of(4) == {DEAD}
    cluster.resume(4)
    cluster.run(15)
    assert cluster.states_of(4) == {ALIVE}
    assert set(cluster.view(4).values()) == {ALIVE}


def test_a_node_that_begins_again_outranks_what_was_said_of_its_last_life() -> None:
    cluster = GossipCluster(5, seed=8)
    cluster.join()
    cluster.run(10)
    cluster.stop(2)
    cluster.run(30)
    cluster.resume()
    cluster.stopped.discard(2)
    cluster.nodes[2] = cluster.new_node(2)
    cluster.exchange(2, 1)
    cluster.run(10)
    assert cluster.states_of(2) == {ALIVE}
    assert cluster.nodes[2].members_table.own.incarnation > 0


def test_who_says_good_bye_is_not_suspected() -> None:
    cluster = GossipCluster(10, seed=9)
    cluster.join()
    cluster.run(10)
    cluster._carry_out(3, cluster.nodes[3].leave(cluster.now))
    cluster.run(3)
    cluster.stop(3)
    cluster.run(20)
    assert cluster.states_of(3) == {LEFT}
    assert {change.after.state for _, _, change in cluster.changes} == {ALIVE, LEFT}


def test_what_a_node_tells_of_itself_reaches_everybody() -> None:
    cluster = GossipCluster(20, seed=10)
    cluster.join()
    cluster.run(10)
    about = SelfDescription(Address("127.0.0.1", 6), rack="b", load=(("bytes_in", 3.5),))
    cluster.nodes[6].members_table.announce(about)
    cluster.run(5)
    for node in set(cluster.nodes) - {6}:
        member = cluster.nodes[node].members_table.get(cluster.nodes[6].members_table.own.node)
        assert member is not None
        assert member.claim.about == about


def test_a_slow_node_asks_less_often() -> None:
    cluster = GossipCluster(10, seed=11, cut=lambda s, r, now: 2 in (s, r) and now > 10)
    cluster.join()
    cluster.run(20)
    assert cluster.nodes[2].health > 0
    assert cluster.nodes[3].health == 0


def test_traffic_does_not_grow_with_what_is_known() -> None:
    """A quiet cluster asks once a second each and has nothing else to say."""
    cluster = GossipCluster(50, seed=12)
    cluster.join()
    cluster.run(60)
    before = cluster.sent
    cluster.run(30)
    per_node_second = (cluster.sent - before) / 50 / 30
    assert per_node_second == pytest.approx(2, abs=0.2)


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> bytes:
        cluster = GossipCluster(20, seed=13, loss=0.2)
        cluster.join()
        cluster.run(30)
        cluster.stop(5)
        cluster.run(30)
        return msgspec.msgpack.encode(
            [(at, by, change.after) for at, by, change in cluster.changes]
        )

    assert history() == history()
