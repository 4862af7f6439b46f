"""Gossip over real sockets on loopback."""

import asyncio
import os
import random
import socket
from collections.abc import Callable

import pytest
from tests.unit.cluster.gossip.village import claim_of

from mainstem.cluster.gossip.driver import Gossip
from mainstem.cluster.gossip.member import About, Address, Change, Claim, MemberState
from mainstem.cluster.gossip.seal import Seal
from mainstem.cluster.gossip.settings import FAST
from mainstem.model.errors import Unavailable
from mainstem.model.ids import NodeId
from mainstem.node.clock import SystemClock

ALIVE, SUSPECT, DEAD, LEFT = MemberState
SECRET = b"0123456789abcdef"


async def start(node: int, *join: Address, secret: bytes = SECRET) -> tuple[Gossip, list[Change]]:
    changes: list[Change] = []
    gossip = Gossip(Seal("c", [secret], os.urandom), SystemClock(), changes.append)
    about = About(Address("127.0.0.1", 0), rack=f"rack {node}")
    own = Claim(NodeId(node), 0, ALIVE, NodeId(node), about)
    await gossip.start(own, FAST, random.Random(node).random)
    if join:
        await gossip.join(join)
    return gossip, changes


def address_of(gossip: Gossip) -> Address:
    return gossip.swim.roster.own.about.address


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - real time passes
            await asyncio.sleep(0.02)


def racks(gossip: Gossip) -> set[str]:
    return {member.claim.about.rack for member in gossip.members()}


def test_nodes_find_each_other_notice_a_death_and_a_good_bye() -> None:
    async def story() -> None:
        first, changes = await start(1)
        second, _ = await start(2, address_of(first))
        third, _ = await start(3, address_of(second))
        await until(lambda: racks(first) == {"rack 2", "rack 3"})
        await until(lambda: racks(third) == {"rack 1", "rack 2"})

        await second.close()
        await until(lambda: racks(first) == {"rack 3"})
        await third.close(say_good_bye=False)
        await until(lambda: racks(first) == set())

        await first.close()
        ends = {change.after.node: change.after.state for change in changes}
        assert ends == {2: LEFT, 3: DEAD}

    asyncio.run(story())


def test_a_node_without_the_secret_is_refused_and_harms_nothing() -> None:
    async def story() -> None:
        first, _ = await start(1)
        stranger, _ = await start(66, secret=b"fedcba9876543210")
        with pytest.raises(Unavailable, match="same cluster secret"):
            await stranger.join([address_of(first)])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
            plain.sendto(b"\x90" * 50, address_of(first))
        await until(lambda: first.refused == 2)
        second, _ = await start(2, address_of(first))
        assert racks(second) == {"rack 1"}
        assert racks(first) == {"rack 2"}
        for gossip in (first, second, stranger):
            await gossip.close()

    asyncio.run(story())


def test_a_stream_that_claims_to_be_huge_is_ended() -> None:
    async def story() -> bytes:
        first, _ = await start(1)
        reader, writer = await asyncio.open_connection(*address_of(first))
        writer.write((1 << 31).to_bytes(4))
        rest = await reader.read()
        writer.close()
        assert first.refused == 1
        await first.close()
        return rest

    assert asyncio.run(story()) == b""


def test_a_cluster_that_does_not_answer_is_an_error_with_its_addresses() -> None:
    async def story() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            nobody = Address(*taken.getsockname())
        lone, _ = await start(1)
        with pytest.raises(Unavailable, match=str(nobody.port)):
            await lone.join([nobody])
        await lone.close()

    asyncio.run(story())


def test_what_is_sent_fits_a_datagram_however_much_there_is_to_tell() -> None:
    async def story() -> int:
        first, _ = await start(1)
        for node in range(2, 500):
            first.swim.roster.hear(claim_of(node), 0.0)
        sent: list[bytes] = []
        transport = first._datagrams
        assert transport is not None
        first._datagrams = _Recording(sent)  # type: ignore[assignment]
        await asyncio.sleep(0.5)
        first._datagrams = transport
        await first.close(say_good_bye=False)
        assert len(sent) > 5
        return max(map(len, sent))

    assert 500 < asyncio.run(story()) <= FAST.packet_bytes_max


class _Recording:
    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    def is_closing(self) -> bool:
        return False

    def sendto(self, data: bytes, address: Address) -> None:
        self._sent.append(data)
