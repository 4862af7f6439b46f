"""Messages of the gossip protocol, as msgpack.

A packet is a probe or an answer that also carries claims. For a full state exchange two nodes
send each other ``Everything``.
"""

from enum import IntEnum

import msgspec

from mainstem.cluster.gossip.member import Address, Claim
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.ids import NodeId

VERSION = 1
NOBODY = NodeId(0)


class PacketKind(IntEnum):
    """Kind of a packet."""

    PING = 0  # direct probe
    ACK = 1  # the probed node answered, directly or through a helper
    NACK = 2  # a helper got no answer from the target
    PROBE = 3  # indirect probe: request to probe another node
    CLAIMS = 4  # only claims


class Packet(msgspec.Struct, frozen=True, array_like=True):
    """One datagram."""

    kind: PacketKind
    sender: NodeId
    number: int = 0
    target: NodeId = NOBODY
    address: Address = Address("", 0)
    claims: tuple[Claim, ...] = ()


class Everything(msgspec.Struct, frozen=True, array_like=True):
    """All claims that a node knows, its own included."""

    version: int
    sender: NodeId
    claims: tuple[Claim, ...]


_encoder = msgspec.msgpack.Encoder()
_packets = msgspec.msgpack.Decoder(Packet)
_everything = msgspec.msgpack.Decoder(Everything)


def encode(message: Packet | Everything) -> bytes:
    """The bytes of a packet or of a full state."""
    return _encoder.encode(message)


def size_bytes(claim: Claim) -> int:
    """How many bytes of a packet a claim takes."""
    return len(_encoder.encode(claim))


def decode_packet(data: bytes) -> Packet:
    """Decode a datagram.

    Raises:
        Corrupt: it is not a gossip packet.
    """
    try:
        return _packets.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a gossip packet: {error}") from error


def decode_everything(data: bytes) -> Everything:
    """Decode another node's full state.

    Raises:
        Corrupt: it is not a gossip exchange, or of another version.
    """
    try:
        found = _everything.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a gossip exchange: {error}") from error
    if found.version != VERSION:
        raise Corrupt(
            f"gossip of version {found.version}, this node speaks {VERSION}",
            remedy="run versions that are at most one release apart",
        )
    return found
