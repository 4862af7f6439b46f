"""The machine of one node, step by step."""

import msgspec
from tests.unit.cluster.gossip.gossip_cluster import claim_of

from mainstem.cluster.gossip.member import Address, GossipState
from mainstem.cluster.gossip.packets import VERSION, Everything, Packet, PacketKind
from mainstem.cluster.gossip.settings import GossipSettings
from mainstem.cluster.gossip.swim import Swim
from mainstem.model.ids import NodeId

ALIVE, SUSPECT, DEAD, LEFT = GossipState
SETTINGS = GossipSettings()


def node_that_knows(*others: int, chance: float = 0.0) -> Swim:
    swim = Swim(claim_of(1), SETTINGS, chance=lambda: chance, now_s=0.0)
    everything = Everything(VERSION, NodeId(2), tuple(claim_of(other) for other in others))
    swim.on_everything(everything, 0.0)
    return swim


def tell_all(swim: Swim) -> None:
    """Lets the node get rid of its news."""
    for _ in range(50):
        swim.on_packet(Packet(PacketKind.PING, NodeId(2), 1, NodeId(1)), Address("", 2), 0.0)


def test_a_silent_member_is_asked_for_through_others_and_then_suspected() -> None:
    swim = node_that_knows(2, 3, 4)
    [(_, ping)] = [pair for pair in swim.on_tick(0.0).datagrams if pair[1].kind is PacketKind.PING]

    helped = swim.on_tick(SETTINGS.probe_timeout_s)
    ended = swim.on_tick(SETTINGS.probe_interval_s)

    asked = [(to.port, each) for to, each in helped.datagrams if each.kind is PacketKind.PROBE]
    assert {port for port, _ in asked} == {2, 3, 4} - {ping.target}
    assert all(each.target == ping.target == each.address.port for _, each in asked)
    assert helped.stream_pings == [(Address("127.0.0.1", ping.target), ping.number)]
    assert [(change.after.node, change.after.state) for change in ended.changes] == [
        (ping.target, SUSPECT)
    ]


def test_an_answer_that_was_given_to_a_former_process_is_no_sign_of_life() -> None:
    def first_ping(swim: Swim) -> Packet:
        datagrams = swim.on_tick(SETTINGS.probe_interval_s).datagrams
        return next(packet for _, packet in datagrams if packet.kind is PacketKind.PING)

    former, swim = node_that_knows(2, chance=0.25), node_that_knows(2, chance=0.75)
    recorded = Packet(PacketKind.ACK, NodeId(2), first_ping(former).number, NodeId(1))
    first_ping(swim)
    swim.on_packet(recorded, Address("", 2), SETTINGS.probe_interval_s)
    ended = swim.on_tick(SETTINGS.probe_interval_s * 2)
    assert [change.after.state for change in ended.changes] == [SUSPECT]


def test_a_suspect_is_told_of_its_suspicion_with_the_next_question() -> None:
    swim = node_that_knows(2)
    swim.on_tick(0.0)
    swim.on_tick(SETTINGS.probe_interval_s)
    tell_all(swim)

    at = SETTINGS.probe_interval_s * (1 + swim.health + 1)
    pings = [each for _, each in swim.on_tick(at).datagrams if each.kind is PacketKind.PING]

    assert [claim.state for ping in pings for claim in ping.claims] == [SUSPECT]


def test_who_asks_for_another_hears_that_it_is_there_or_that_nobody_answers() -> None:
    swim = node_that_knows(2, 3)
    question = Packet(PacketKind.PROBE, NodeId(2), 70, NodeId(3), Address("127.0.0.1", 3))
    asker = Address("127.0.0.1", 2)
    [(to, first)] = swim.on_packet(question, asker, 0.0).datagrams
    [(_, second)] = swim.on_packet(question, asker, 0.0).datagrams
    assert (to.port, first.kind, first.target) == (3, PacketKind.PING, 3)

    answer = Packet(PacketKind.ACK, NodeId(3), first.number)
    [(back, ack)] = swim.on_packet(answer, to, 0.1).datagrams
    late = swim.on_tick(SETTINGS.probe_timeout_s)

    assert (back, ack.kind, ack.number) == (asker, PacketKind.ACK, 70)
    assert [
        (where, each.number) for where, each in late.datagrams if each.kind is PacketKind.NACK
    ] == [(asker, 70)]
    assert second.number != first.number


def test_a_question_for_somebody_else_is_not_answered() -> None:
    swim = node_that_knows(2)
    ping = Packet(PacketKind.PING, NodeId(2), 5, NodeId(99))
    assert swim.on_packet(ping, Address("127.0.0.1", 2), 0.0).datagrams == []


def test_one_that_has_just_gone_hears_the_news_too_and_later_no_more() -> None:
    swim = node_that_knows(2)
    gone = msgspec.structs.replace(claim_of(2), state=DEAD)
    swim.on_packet(Packet(PacketKind.CLAIMS, NodeId(3), claims=(gone,)), Address("", 3), 1.0)

    soon = swim.on_tick(1.0 + SETTINGS.gossip_interval_s).datagrams
    swim.members_table.announce(
        msgspec.structs.replace(swim.members_table.own.about, rack="another")
    )
    later = swim.on_tick(1.0 + SETTINGS.gossip_to_gone_s).datagrams

    assert [(to.port, each.kind) for to, each in soon] == [(2, PacketKind.CLAIMS)]
    assert later == []
