"""What holds of two claims, how long suspicions last, which news goes first, whose bytes count."""

import os

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cluster.gossip.gossip_cluster import claim_of

from mainstem.cluster.gossip.broadcast_queue import BroadcastQueue
from mainstem.cluster.gossip.cipher import GossipCipher
from mainstem.cluster.gossip.member import Address, Claim, GossipState, SelfDescription
from mainstem.cluster.gossip.member_table import MemberTable
from mainstem.cluster.gossip.packets import (
    VERSION,
    Everything,
    Packet,
    PacketKind,
    decode_everything,
    decode_packet,
    encode,
    size_bytes,
)
from mainstem.cluster.gossip.settings import GossipSettings
from mainstem.cluster.gossip.suspicion import Suspicion
from mainstem.model.errors import Corrupt, InvalidRequest
from mainstem.model.ids import NodeId

ALIVE, SUSPECT, DEAD, LEFT = GossipState
SETTINGS = GossipSettings()
SECRET = b"0123456789abcdef"


def said(node: int, incarnation: int, state: GossipState, origin: int = 9) -> Claim:
    fresh = claim_of(node, incarnation)
    return msgspec.structs.replace(fresh, state=state, origin=NodeId(origin))


def roster_of_one() -> tuple[MemberTable, BroadcastQueue]:
    rumours = BroadcastQueue(SETTINGS.retransmit_factor, size_bytes)
    return MemberTable(claim_of(1), SETTINGS, rumours), rumours


@pytest.mark.parametrize(
    ("known", "heard", "holds"),
    [
        ((0, ALIVE), (0, ALIVE), "known"),
        ((0, ALIVE), (1, ALIVE), "heard"),
        ((1, ALIVE), (0, DEAD), "known"),
        ((0, ALIVE), (0, SUSPECT), "heard"),
        ((0, SUSPECT), (0, ALIVE), "known"),
        ((0, SUSPECT), (1, ALIVE), "heard"),
        ((0, SUSPECT), (0, DEAD), "heard"),
        ((0, DEAD), (0, SUSPECT), "known"),
        ((0, DEAD), (1, ALIVE), "heard"),
        ((0, DEAD), (0, LEFT), "heard"),
        ((1, LEFT), (1, DEAD), "known"),
    ],
)
def test_the_higher_incarnation_holds_and_then_the_worse_state(
    known: tuple[int, GossipState], heard: tuple[int, GossipState], holds: str
) -> None:
    members_table, _ = roster_of_one()
    members_table.receive(said(2, known[0], ALIVE), 0.0)
    members_table.receive(said(2, *known), 0.0)

    change = members_table.receive(said(2, *heard), 1.0)

    assert (change is not None) == (holds == "heard")
    member = members_table.get(NodeId(2))
    assert member is not None
    assert member.claim.rank == (known if holds == "known" else heard)


@given(st.data())
def test_in_whatever_order_claims_are_heard_the_same_holds(data: st.DataObject) -> None:
    states = st.sampled_from([ALIVE, SUSPECT, DEAD, LEFT])
    claims = data.draw(st.lists(st.builds(said, st.just(2), st.integers(0, 3), states)))
    ends = []
    for order in (claims, data.draw(st.permutations(claims))):
        members_table, _ = roster_of_one()
        members_table.receive(said(2, 0, ALIVE), 0.0)
        for claim in order:
            members_table.receive(claim, 0.0)
        member = members_table.get(NodeId(2))
        assert member is not None
        ends.append(member.claim.rank)
    assert ends[0] == ends[1] == max([(0, ALIVE), *(claim.rank for claim in claims)])


def test_a_bad_claim_about_this_node_is_contradicted() -> None:
    members_table, rumours = roster_of_one()
    members_table.receive(said(1, 4, DEAD), 0.0)
    assert members_table.own.rank == (5, ALIVE)
    assert rumours.take(2, 10_000) == [members_table.own]


def test_of_one_that_is_gone_and_unknown_nothing_is_kept() -> None:
    members_table, _ = roster_of_one()
    assert members_table.receive(said(2, 3, DEAD), 0.0) is None
    assert members_table.get(NodeId(2)) is None


def test_no_more_members_are_kept_than_allowed() -> None:
    rumours = BroadcastQueue(4, size_bytes)
    members_table = MemberTable(claim_of(1), GossipSettings(members_max=2), rumours)
    for node in (2, 3, 4):
        members_table.receive(said(node, 0, ALIVE), 0.0)
    assert [member.node for member in members_table] == [2, 3]


def test_one_that_is_gone_for_long_is_forgotten() -> None:
    members_table, _ = roster_of_one()
    members_table.receive(said(2, 0, ALIVE), 0.0)
    members_table.receive(said(2, 0, LEFT), 1.0)
    members_table.expire(SETTINGS.forget_s)
    assert members_table.get(NodeId(2)) is not None
    members_table.expire(1.0 + SETTINGS.forget_s)
    assert members_table.get(NodeId(2)) is None


def test_only_the_node_itself_says_what_it_is_like() -> None:
    members_table, _ = roster_of_one()
    members_table.receive(said(2, 0, ALIVE), 0.0)
    lie = msgspec.structs.replace(
        said(2, 0, SUSPECT), about=SelfDescription(Address("elsewhere", 1))
    )
    members_table.receive(lie, 0.0)
    member = members_table.get(NodeId(2))
    assert member is not None
    assert member.address == Address("127.0.0.1", 2)


@pytest.mark.parametrize(
    ("members", "confirmations", "patience_s"),
    [(3, 0, 4.0), (10, 0, 24.0), (10, 1, 11.38), (10, 2, 4.0), (100, 0, 48.0), (100, 2, 8.0)],
)
def test_the_more_agree_the_shorter_a_suspicion_lasts(
    members: int, confirmations: int, patience_s: float
) -> None:
    suspicion = Suspicion(NodeId(1), members, SETTINGS, 100.0)
    for origin in range(2, 2 + confirmations):
        assert suspicion.confirm(NodeId(origin))
        assert not suspicion.confirm(NodeId(origin))
    assert suspicion.deadline_s - 100.0 == pytest.approx(patience_s, abs=0.01)


def test_the_least_told_goes_first_and_nothing_is_told_for_ever() -> None:
    rumours = BroadcastQueue(1, lambda claim: 10)
    rumours.put(said(2, 0, ALIVE))
    rumours.put(said(3, 0, ALIVE))
    # Of 99 members each piece is told twice; a packet has room for one.
    told = [rumours.take(99, 15)[0].node for _ in range(4)]
    assert told == [2, 3, 2, 3]
    assert rumours.take(99, 15) == []


def test_newer_news_of_a_node_replaces_older() -> None:
    rumours = BroadcastQueue(1, lambda claim: 10)
    rumours.put(said(2, 0, ALIVE))
    rumours.put(said(2, 0, DEAD))
    assert [claim.state for claim in rumours.take(5, 100)] == [DEAD]


@given(
    node=st.integers(1, 2**31),
    incarnation=st.integers(0, 2**40),
    state=st.sampled_from([*GossipState]),
)
def test_packets_are_read_as_they_were_written(
    node: int, incarnation: int, state: GossipState
) -> None:
    claim = said(node, incarnation, state)
    packet = Packet(PacketKind.PROBE, NodeId(1), 7, NodeId(2), Address("h", 3), (claim,))
    assert decode_packet(encode(packet)) == packet
    everything = Everything(VERSION, NodeId(1), (claim,))
    assert decode_everything(encode(everything)) == everything


@given(st.binary(max_size=64))
def test_bytes_that_are_no_packet_are_refused(data: bytes) -> None:
    for decode in (decode_packet, decode_everything):
        try:
            decode(data)
        except Corrupt:
            continue
        assert encode(decode(data)) is not None


def test_an_exchange_of_another_version_is_refused_with_the_remedy() -> None:
    with pytest.raises(Corrupt, match="version 2"):
        decode_everything(encode(Everything(2, NodeId(1), ())))


@given(message=st.binary(), place=st.integers(0), bit=st.integers(0, 7))
def test_a_seal_opens_what_it_sealed_and_nothing_that_was_altered(
    message: bytes, place: int, bit: int
) -> None:
    seal = GossipCipher("c", [SECRET], os.urandom)
    sealed = bytearray(seal.seal(message))
    assert seal.open(bytes(sealed)) == message
    sealed[place % len(sealed)] ^= 1 << bit
    with pytest.raises(Corrupt):
        seal.open(bytes(sealed))


def test_a_new_secret_is_brought_in_node_by_node() -> None:
    new = b"fedcba9876543210"
    old_only, both = (
        GossipCipher("c", [SECRET], os.urandom),
        GossipCipher("c", [SECRET, new], os.urandom),
    )
    new_first = GossipCipher("c", [new, SECRET], os.urandom)
    assert new_first.open(old_only.seal(b"x")) == both.open(new_first.seal(b"x")) == b"x"


@pytest.mark.parametrize(
    ("cluster", "secret"), [("d", SECRET), ("c", b"another secret that is long")]
)
def test_another_cluster_is_not_heard(cluster: str, secret: bytes) -> None:
    with pytest.raises(Corrupt, match="not sealed"):
        GossipCipher("c", [SECRET], os.urandom).open(
            GossipCipher(cluster, [secret], os.urandom).seal(b"x")
        )


def test_a_short_secret_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidRequest, match="at least 16"):
        GossipCipher("c", [b"short"], os.urandom)
