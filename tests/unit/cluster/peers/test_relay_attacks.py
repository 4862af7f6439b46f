"""Somebody between two nodes changes, drops, repeats, moves and puts in what passes."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from tests.unit.cluster.peers.relay import Relay, Way

from mainstem.cluster.peers import connection_transport, protection
from mainstem.cluster.peers.frames import HEADER, TAG_BYTES, FrameKind, PeerService, header
from mainstem.cluster.peers.service import Address, Peers, PeerSettings
from mainstem.cluster.peers.versions import OWN_VERSIONS, Versions
from mainstem.model.errors import Corrupt, Unavailable
from mainstem.model.ids import NodeId

SECRET = b"0123456789abcdef"
ONE, TWO = NodeId(1), NodeId(2)


@dataclass
class Link:
    """Node 1 reaches node 2 through a relay; node 2 notes what it is told."""

    dialler: Peers
    listener: Peers
    relay: Relay
    heard: list[bytes] = field(default_factory=list)

    async def ask(self, body: bytes) -> bytes:
        return bytes(await self.dialler.ask(TWO, PeerService.CATALOGUE, [body], timeout_s=20))

    def note(self, body: bytes) -> bool:
        return self.dialler.note(TWO, PeerService.RAFT, [body])

    async def close(self) -> None:
        await self.dialler.close()
        await self.listener.close()
        await self.relay.close()


async def linked(*, versions: Versions = OWN_VERSIONS, allows_cleartext: bool = False) -> Link:
    addresses: dict[NodeId, Address] = {}

    def peers(node: NodeId, spoken: Versions) -> Peers:
        settings = PeerSettings(
            cluster="c",
            node=node,
            broker_epoch=1,
            secrets=(SECRET,),
            versions=spoken,
            allows_cleartext=allows_cleartext,
        )
        return Peers(settings, addresses.get, os.urandom)

    dialler, listener = peers(ONE, OWN_VERSIONS), peers(TWO, versions)
    relay = Relay(await listener.listen("127.0.0.1", 0))
    addresses[TWO] = await relay.listen()
    link = Link(dialler, listener, relay)

    async def apply(node: NodeId, body: memoryview) -> Sequence[bytes]:
        link.heard.append(bytes(body))
        return [b"applied ", bytes(body)]

    listener.serve(PeerService.CATALOGUE, apply)
    listener.on_note(PeerService.RAFT, lambda node, body: link.heard.append(bytes(body)))
    return link


class Attacker:
    """Does one thing to the frames that pass in one direction, once."""

    def __init__(self, way: Way, attack: Callable[[list[bytes]], list[bytes]], frames: int) -> None:
        self._way = way
        self._attack = attack
        self._frames = frames
        self._held: list[bytes] = []
        self.is_done = False

    def __call__(self, way: Way, frame: bytes) -> list[bytes]:
        if way != self._way or self.is_done:
            return [frame]
        self._held.append(frame)
        if len(self._held) < self._frames:
            return []
        self.is_done = True
        return self._attack(self._held)


def flip(at: int) -> Callable[[list[bytes]], list[bytes]]:
    def flipped(frames: list[bytes]) -> list[bytes]:
        [frame] = frames
        changed = bytearray(frame)
        changed[at] ^= 1
        return [bytes(changed)]

    return flipped


def put_in(frame: bytes) -> Callable[[list[bytes]], list[bytes]]:
    return lambda frames: [frame, *frames]


def forged(kind: FrameKind, body: bytes) -> bytes:
    return header(kind, PeerService.CATALOGUE, 1, len(body) + TAG_BYTES) + body + bytes(TAG_BYTES)


ATTACKS = {
    "flips a bit of the kind": (flip(4), 1),
    "flips a bit of the service": (flip(5), 1),
    "flips a bit of the number": (flip(9), 1),
    "flips a bit of the body": (flip(HEADER.size), 1),
    "flips a bit of the tag": (flip(-1), 1),
    "shortens the length": (flip(3), 1),
    "drops a frame": (lambda frames: frames[1:], 2),
    "repeats a frame": (lambda frames: [frames[0], *frames], 1),
    "swaps two frames": (lambda frames: frames[::-1], 2),
    "puts in a question": (put_in(forged(FrameKind.QUESTION, b"forged")), 1),
    "puts in an answer": (put_in(forged(FrameKind.ANSWER, b"forged")), 1),
    "puts in a question without a tag": (
        put_in(header(FrameKind.QUESTION, PeerService.CATALOGUE, 1, 6) + b"forged"),
        1,
    ),
    "puts in noise": (put_in(b"\0\0\0\x30" + bytes(range(48))), 1),
}


@pytest.mark.parametrize("encrypts", [False, True])
@pytest.mark.parametrize("way", ["to listener", "from listener"])
@pytest.mark.parametrize("attack", ATTACKS)
async def test_whatever_is_done_between_nodes_ends_that_connection_and_nothing_false_is_applied(
    attack: str,
    way: Way,
    encrypts: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(connection_transport, "_is_local", lambda _: not encrypts)

    link = await linked()
    assert await link.ask(b"before") == b"applied before"
    doing, frames = ATTACKS[attack]
    attacker = link.relay.meddle = Attacker(way, doing, frames)
    asked = [asyncio.ensure_future(link.ask(b"%d" % n)) for n in range(3)]
    answers: list[object] = await asyncio.gather(*asked, return_exceptions=True)
    assert attacker.is_done
    after = await link.ask(b"after")
    connections = link.relay.connections
    heard = link.heard
    await link.close()
    sent = [b"before", b"0", b"1", b"2", b"after"]
    assert (heard[0], heard[-1]) == (b"before", b"after")
    assert heard == [body for body in sent if body in heard], "in order, once, and none made up"
    for number, answer in enumerate(answers):
        assert isinstance(answer, Unavailable) or answer == b"applied %d" % number
    assert any(isinstance(answer, Unavailable) for answer in answers)
    assert after == b"applied after"
    assert connections == 2
    [warning] = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "closed" in warning.getMessage()
    assert f"node {2 if way == 'from listener' else 1}" in warning.getMessage()


@pytest.mark.parametrize("encrypts", [False, True])
async def test_frames_of_one_connection_are_worth_nothing_on_another(
    encrypts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_transport, "_is_local", lambda _: not encrypts)

    link = await linked()
    recorded: list[bytes] = []

    def record(way: Way, frame: bytes) -> list[bytes]:
        if way == "to listener":
            recorded.append(frame)
        return [frame]

    link.relay.meddle = record
    await link.ask(b"pay once")
    link.relay.meddle = Attacker("to listener", lambda frames: [recorded[0]], 1)
    with pytest.raises(Unavailable):
        await link.ask(b"something else")
    link.relay.meddle = Attacker("to listener", lambda frames: [recorded[0]], 1)
    with pytest.raises(Unavailable):
        await link.ask(b"first frame of a new connection")
    await link.close()
    assert link.heard == [b"pay once"]


async def test_between_machines_nobody_can_read_what_nodes_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def seen_on_the_wire() -> bytes:
        link = await linked()
        await link.ask(b"the salary of the director")
        await link.close()
        return bytes(link.relay.seen)

    assert b"the salary of the director" in await seen_on_the_wire()  # on one machine
    monkeypatch.setattr(connection_transport, "_is_local", lambda _: False)
    assert b"director" not in await seen_on_the_wire()


async def test_one_side_that_sees_another_machine_is_enough_to_encrypt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = iter([True, False])
    monkeypatch.setattr(connection_transport, "_is_local", lambda _: next(local))

    link = await linked()
    assert await link.ask(b"the salary of the director") == b"applied the salary of the director"
    await link.close()
    assert b"director" not in link.relay.seen


async def test_a_node_of_the_first_release_is_spoken_with_in_the_clear_only_where_that_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(*, allows_cleartext: bool) -> bytes:
        link = await linked(versions=Versions(1, 1), allows_cleartext=allows_cleartext)
        try:
            return await link.ask(b"x")
        finally:
            await link.close()

    assert await answer(allows_cleartext=False) == b"applied x"  # on one machine
    monkeypatch.setattr(connection_transport, "_is_local", lambda _: False)
    assert await answer(allows_cleartext=True) == b"applied x"
    with pytest.raises((Corrupt, Unavailable)) as found:
        await answer(allows_cleartext=False)
    if isinstance(found.value, Corrupt):
        assert "--insecure" in found.value.remedy


async def test_a_connection_whose_keys_are_used_up_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(protection, "FRAMES_PER_KEY_MAX", 4)

    link = await linked()
    await link.ask(b"1")
    assert [link.note(b"%d" % n) for n in range(2, 6)] == [True, True, True, False]
    await link.ask(b"6")
    await link.close()
    assert (link.heard, link.relay.connections) == ([b"1", b"2", b"3", b"4", b"6"], 2)
