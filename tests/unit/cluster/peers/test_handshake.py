"""Handshakes between nodes, without a socket: proofs, versions, and what stands in between."""

import os
from collections.abc import Callable
from typing import Protocol

import msgspec
import pytest
from tests.unit.cluster.peers.first_release import FirstRelease

from mainstem.cluster.peers.handshake import CHANCE_BYTES, Handshake, Hello, Side, encode, own_hello
from mainstem.cluster.peers.session_keys import KeyExchange
from mainstem.cluster.peers.versions import HIGHEST_VERSION, NoCommonVersion, Versions
from mainstem.model.errors import Corrupt, InvalidRequest
from mainstem.model.ids import NodeId

SECRET = b"0123456789abcdef"
OTHER = b"fedcba9876543210"
OURS = Versions(1, HIGHEST_VERSION)

Between = Callable[[bytes], bytes]


class AnySide(Protocol):
    """A handshake of this release, or of another."""

    @property
    def hello(self) -> bytes: ...

    def on_message(self, data: bytes) -> list[bytes]: ...


def side(
    who: Side,
    secrets: list[bytes] | None = None,
    *,
    cluster: str = "c",
    versions: Versions = OURS,
    expected: NodeId | None = None,
) -> Handshake:
    exchange = KeyExchange(os.urandom)
    own = own_hello(
        cluster=cluster,
        node=NodeId(1 if who == "dialler" else 2),
        broker_epoch=7,
        chance=os.urandom(CHANCE_BYTES),
        share=exchange.share,
        versions=versions,
    )
    return Handshake(who, own, exchange, secrets or [SECRET], expected)


def introduce(
    dialler: AnySide, listener: AnySide, between: Between = lambda message: message
) -> list[bytes]:
    """Carry messages until neither side has more to say; what was said."""
    said = [dialler.hello]
    to_listener, to_dialler = [dialler.hello], list[bytes]()
    while to_listener or to_dialler:
        if to_listener:
            replies = listener.on_message(between(to_listener.pop(0)))
            to_dialler += replies
        else:
            replies = dialler.on_message(between(to_dialler.pop(0)))
            to_listener += replies
        said += replies
    return said


def changed(message: bytes, **fields: object) -> bytes:
    """A hello with other fields, whatever else the message is."""
    if len(msgspec.msgpack.decode(message)) == 1:
        return message
    return encode(msgspec.structs.replace(msgspec.msgpack.decode(message, type=Hello), **fields))


def test_two_nodes_of_a_cluster_prove_themselves_and_agree_on_version_and_keys() -> None:
    dialler, listener = side("dialler", expected=NodeId(2)), side("listener")
    introduce(dialler, listener)
    assert dialler.is_proved
    assert listener.is_proved
    assert dialler.other is not None
    assert listener.other is not None
    assert (dialler.other.node, listener.other.node) == (2, 1)
    assert dialler.version == listener.version == HIGHEST_VERSION
    assert dialler.keys is not None
    assert dialler.keys == listener.keys
    assert dialler.keys.dialler != dialler.keys.listener


def test_every_connection_has_keys_of_its_own() -> None:
    keys = set()
    for _ in range(3):
        dialler, listener = side("dialler"), side("listener")
        introduce(dialler, listener)
        keys.add(dialler.keys)
    assert len(keys) == 3


def test_the_first_release_is_understood_on_either_side() -> None:
    ours, old = side("dialler"), FirstRelease("listener", 2, SECRET)
    introduce(ours, old)
    assert (ours.is_proved, old.is_proved, ours.version, ours.keys) == (True, True, 1, None)

    old, ours = FirstRelease("dialler", 1, SECRET), side("listener")
    introduce(old, ours)
    assert (ours.is_proved, old.is_proved, ours.version, ours.keys) == (True, True, 1, None)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Versions(1, 2), Versions(1, 2), 2),
        (Versions(1, 2), Versions(2, 3), 2),
        (Versions(2, 5), Versions(1, 3), 3),
        (Versions(1, 1), Versions(1, 4), 1),
    ],
)
def test_the_highest_common_version_is_used(one: Versions, other: Versions, expected: int) -> None:
    dialler, listener = side("dialler", versions=one), side("listener", versions=other)
    introduce(dialler, listener)
    assert dialler.version == listener.version == expected
    assert dialler.is_proved
    assert listener.is_proved


def test_without_a_common_version_the_error_names_both_ranges_and_what_to_install() -> None:
    with pytest.raises(NoCommonVersion) as found:
        introduce(
            side("dialler", versions=Versions(1, 2)), side("listener", versions=Versions(3, 4))
        )
    assert "node 1 speaks versions 1 to 2" in str(found.value)
    assert "this node speaks versions 3 to 4" in str(found.value)
    assert "on node 1" in found.value.remedy
    with pytest.raises(NoCommonVersion, match="node 1 speaks version 1 ") as found:
        introduce(FirstRelease("dialler", 1, SECRET), side("listener", versions=Versions(2, 2)))
    newer = side("dialler", versions=Versions(9, 9)).hello
    with pytest.raises(NoCommonVersion) as found:
        side("listener").on_message(newer)
    assert "on this node" in found.value.remedy


@pytest.mark.parametrize(
    "fields",
    [
        {"lowest": 0, "highest": 0, "share": b""},
        {"highest": 1, "share": b""},
        {"highest": 1},
        {"share": bytes(32)},
        {"share": KeyExchange(os.urandom).share},
        {"broker_epoch": 8},
        {"lowest": 2, "version": 2},
        {"nonce": b"n" * 32},
    ],
)
@pytest.mark.parametrize("towards", ["dialler", "listener", "both"])
def test_a_hello_that_is_changed_on_the_way_is_refused(
    fields: dict[str, object], towards: str
) -> None:
    """Above all one without its offer, by which two nodes would take each other for old ones."""
    dialler, listener = side("dialler"), side("listener")

    def meddle(message: bytes) -> bytes:
        is_hello = len(msgspec.msgpack.decode(message)) > 1
        if not is_hello:
            return message
        to = "listener" if message == dialler.hello else "dialler"
        return changed(message, **fields) if towards in (to, "both") else message

    with pytest.raises(Corrupt):
        introduce(dialler, listener, meddle)
    assert not (dialler.is_proved and listener.is_proved)


def test_a_new_secret_is_brought_in_node_by_node() -> None:
    """One secret in common is enough, whichever each side has first; keys are the same."""
    before, between, after = [SECRET], [SECRET, OTHER], [OTHER, SECRET]
    courses = ((before, between), (between, after), (after, before), (between, [OTHER]))
    for one, other in courses:
        for dialled, listened in ((one, other), (other, one)):
            dialler, listener = side("dialler", dialled), side("listener", listened)
            introduce(dialler, listener)
            assert dialler.keys == listener.keys


def test_no_node_knows_more_secrets_than_it_can_prove() -> None:
    with pytest.raises(InvalidRequest, match="at most 4"):
        side("dialler", [SECRET + bytes([number]) for number in range(5)])


@pytest.mark.parametrize("versions", [Versions(1, 1), OURS])
def test_who_does_not_know_the_secret_is_refused_by_either_side(versions: Versions) -> None:
    dialler, listener = side("dialler", [OTHER], versions=versions), side("listener")
    with pytest.raises(Corrupt, match="node 2 does not have the cluster's secret"):
        introduce(dialler, listener)

    stubborn = side("listener")
    stubborn.on_message(dialler.hello)
    with pytest.raises(Corrupt, match="node 1 does not have the cluster's secret"):
        stubborn.on_message(encode([b"\0" * 32]))
    assert not stubborn.is_proved


@pytest.mark.parametrize("versions", [Versions(1, 1), OURS])
def test_a_proof_cannot_be_sent_back_or_used_again(versions: Versions) -> None:
    dialler, listener = side("dialler", versions=versions), side("listener", versions=versions)
    [*_, shown] = listener.on_message(dialler.hello)
    found = msgspec.msgpack.decode(shown)
    with pytest.raises(Corrupt, match="secret"):
        listener.on_message(encode([found[5] if len(found) > 1 else found[0]]))

    said = introduce(dialler, side("listener", versions=versions))
    again = side("listener", versions=versions)
    again.on_message(dialler.hello)
    with pytest.raises(Corrupt, match="secret"):
        again.on_message(said[-1])


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (side("dialler", cluster="another").hello, "cluster 'another'"),
        (changed(side("dialler").hello, nonce=b"short"), "nonce"),
        (changed(side("dialler").hello, node=5), "node 5 answered at the address of node 1"),
        (b"GET / HTTP/1.1", "not a handshake"),
        (encode([1, "c"]), "not a handshake"),
        (side("dialler").hello.replace(b"\xa1c", b"\xa1\xff"), "not a handshake"),
        (b"\x9b" + side("dialler").hello[1:] + b"\x91" * 3_000 + b"\xc0", "not a handshake"),
    ],
    ids=[
        "another cluster",
        "short nonce",
        "another node",
        "HTTP",
        "too short",
        "a name that is not UTF-8",
        "nested too deeply",
    ],
)
def test_a_wrong_hello_is_refused_with_what_is_wrong(said: bytes, message: str) -> None:
    with pytest.raises(Corrupt, match=message):
        side("listener", expected=NodeId(1)).on_message(said)
