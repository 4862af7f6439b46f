"""Gossip over real sockets on loopback."""

import asyncio
import os
import random
import socket

import pytest
from tests.kit.waiting import eventually
from tests.unit.cluster.gossip.gossip_cluster import claim_of

from mainstem.cluster.gossip.cipher import GossipCipher
from mainstem.cluster.gossip.driver import Gossip
from mainstem.cluster.gossip.member import (
    Address,
    Claim,
    GossipState,
    MemberChange,
    SelfDescription,
)
from mainstem.cluster.gossip.settings import FAST
from mainstem.model.errors import Unavailable
from mainstem.model.ids import NodeId
from mainstem.node.clock import SystemClock

ALIVE, SUSPECT, DEAD, LEFT = GossipState
SECRET = b"0123456789abcdef"


async def start(
    node: int, *join: Address, secret: bytes = SECRET
) -> tuple[Gossip, list[MemberChange]]:
    changes: list[MemberChange] = []
    gossip = Gossip(GossipCipher("c", [secret], os.urandom), SystemClock(), changes.append)
    about = SelfDescription(Address("127.0.0.1", 0), rack=f"rack {node}")
    own = Claim(NodeId(node), 0, ALIVE, NodeId(node), about)
    await gossip.start(own, FAST, random.Random(node).random)
    if join:
        await gossip.join(join)
    return gossip, changes


def address_of(gossip: Gossip) -> Address:
    return gossip.swim.members_table.own.about.address


def racks(gossip: Gossip) -> set[str]:
    return {member.claim.about.rack for member in gossip.members()}


async def test_nodes_find_each_other_notice_a_death_and_a_good_bye() -> None:
    first, changes = await start(1)
    second, _ = await start(2, address_of(first))
    third, _ = await start(3, address_of(second))
    await eventually(lambda: racks(first) == {"rack 2", "rack 3"})
    await eventually(lambda: racks(third) == {"rack 1", "rack 2"})

    await second.close()
    await eventually(lambda: racks(first) == {"rack 3"})
    await third.close(announce_leave=False)
    await eventually(lambda: racks(first) == set())

    await first.close()
    ends = {change.after.node: change.after.state for change in changes}
    assert ends == {2: LEFT, 3: DEAD}


async def test_a_node_without_the_secret_is_refused_and_harms_nothing() -> None:
    first, _ = await start(1)
    stranger, _ = await start(66, secret=b"fedcba9876543210")
    with pytest.raises(Unavailable, match="same cluster secret"):
        await stranger.join([address_of(first)])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        plain.sendto(b"\x90" * 50, address_of(first))
    await eventually(lambda: first.refused == 2)
    second, _ = await start(2, address_of(first))
    assert racks(second) == {"rack 1"}
    assert racks(first) == {"rack 2"}
    for gossip in (first, second, stranger):
        await gossip.close()


async def test_a_stream_that_claims_to_be_huge_is_ended() -> None:
    first, _ = await start(1)
    reader, writer = await asyncio.open_connection(*address_of(first))
    writer.write((1 << 31).to_bytes(4))
    rest = await reader.read()
    writer.close()
    assert first.refused == 1
    await first.close()
    assert rest == b""


async def test_a_cluster_that_does_not_answer_is_an_error_with_its_addresses() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = Address(*taken.getsockname())
    lone, _ = await start(1)
    with pytest.raises(Unavailable, match=str(nobody.port)):
        await lone.join([nobody])
    await lone.close()


async def test_what_is_sent_fits_a_datagram_however_much_there_is_to_tell() -> None:
    first, _ = await start(1)
    for node in range(2, 500):
        first.swim.members_table.receive(claim_of(node), 0.0)
    sent: list[bytes] = []
    transport = first._datagrams
    assert transport is not None
    first._datagrams = _Recording(sent)  # type: ignore[assignment]
    await asyncio.sleep(0.5)
    first._datagrams = transport
    await first.close(announce_leave=False)
    assert len(sent) > 5
    assert 500 < max(map(len, sent)) <= FAST.packet_bytes_max


class _Recording:
    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    def is_closing(self) -> bool:
        return False

    def sendto(self, data: bytes, address: Address) -> None:
        self._sent.append(data)
