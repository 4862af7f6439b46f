"""What goes over the wire between nodes' gossip, as msgpack.

A packet is a question or an answer that also carries claims. Two nodes that compare everything
exchange ``Everything``.
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
    """What a packet wants or says."""

    PING = 0  # are you there?
    ACK = 1  # yes, or: it is
    NACK = 2  # I asked for you and have heard nothing
    PROBE = 3  # ask that node for me
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
    """All that a node knows of the members, itself included."""

    version: int
    sender: NodeId
    claims: tuple[Claim, ...]


_encoder = msgspec.msgpack.Encoder()
_packets = msgspec.msgpack.Decoder(Packet)
_everything = msgspec.msgpack.Decoder(Everything)


def encode(message: Packet | Everything) -> bytes:
    """The bytes of a packet or of all that is known."""
    return _encoder.encode(message)


def size_bytes(claim: Claim) -> int:
    """How much of a packet a claim takes."""
    return len(_encoder.encode(claim))


def decode_packet(data: bytes) -> Packet:
    """What a datagram says.

    Raises:
        Corrupt: it is not one of ours.
    """
    try:
        return _packets.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a gossip packet: {error}") from error


def decode_everything(data: bytes) -> Everything:
    """What another node knows.

    Raises:
        Corrupt: it is not one of ours, or of another version.
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
