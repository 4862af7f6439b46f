"""The persistent state of a session or a group, and its encoding.

A record in a compacted topic under the session's name: small, because messages stay in the log.
Streams are identified by topic id and partition, so that a topic that was deleted and created
again is another one.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, UnknownVersion
from mainstem.protocols.mqtt.sessions.backlog import StreamPosition
from mainstem.protocols.mqtt.sessions.client_session import ClientSession, InFlightMessage
from mainstem.protocols.mqtt.sessions.shared_group import SharedGroup
from mainstem.protocols.mqtt.subscription_trie import Granted
from mainstem.wire.mqtt.packets import Subscription, Will

VERSION: Final = 1


class KeptFlight(Struct, frozen=True, array_like=True):
    """A message in flight; ``stream`` is empty for a retained one, which has a ``topic``."""

    packet_id: int
    qos: int
    released: bool
    stream: str
    offset: int
    topic: str
    group: str


class SessionImage(Struct, frozen=True, tag="session", tag_field="kind"):
    """The persistent state of one client's session."""

    version: int
    owner: str
    expiry_s: int
    left_ms: int | None
    subscriptions: tuple[tuple[Subscription, int], ...]
    positions: dict[str, int]
    flights: tuple[KeptFlight, ...]
    received: tuple[int, ...]
    will: Will | None


class GroupImage(Struct, frozen=True, tag="group", tag_field="kind"):
    """The persistent state of one shared subscription."""

    version: int
    positions: dict[str, int]
    lent: tuple[tuple[str, int], ...]


class _Versioned(Struct, frozen=True):
    """The field that every version of the format has."""

    version: int


Image = SessionImage | GroupImage
Names = Mapping[int, str]  # names of streams, by number

_versions = msgspec.msgpack.Decoder(_Versioned)
_decoder: msgspec.msgpack.Decoder[Image] = msgspec.msgpack.Decoder(Image)


def session_image(session: ClientSession, names: Names, ends: Mapping[int, int]) -> bytes:
    """Encode a session."""
    flights = tuple(
        _kept(packet_id, flight, names)
        for packet_id, flight in session.in_flight.items()
        # A message lent by a group that another member may get is in the image of the group.
        if flight.lender is None or flight.qos == 2
    )
    return msgspec.msgpack.encode(
        SessionImage(
            version=VERSION,
            owner=session.owner,
            expiry_s=session.expiry_s,
            left_ms=session.left_ms,
            subscriptions=tuple(
                (g.subscription, g.identifier) for g in session.subscriptions.values()
            ),
            positions=_positions(session.backlog.positions(ends), names),
            flights=flights,
            received=tuple(session.received),
            will=session.will,
        )
    )


def group_image(group: SharedGroup, names: Names, ends: Mapping[int, int]) -> bytes:
    """Encode a shared subscription."""
    lent = tuple((names[place.stream], place.offset) for place in group.lent)
    positions = _positions(group.backlog.positions(ends), names)
    return msgspec.msgpack.encode(GroupImage(VERSION, positions, lent))


def image_of(data: bytes) -> Image:
    """Decode a session or a shared subscription.

    Raises:
        Corrupt: the bytes do not decode.
        UnknownVersion: their version is not supported.
    """
    try:
        version = _versions.decode(data).version
        if version != VERSION:
            raise UnknownVersion("an MQTT session", version, VERSION, subject="MQTT sessions")
        return _decoder.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"an MQTT session does not decode: {error}") from error


def restore_session(
    session: ClientSession, image: SessionImage, numbers: Mapping[str, int]
) -> None:
    """Restore a new session from its image; ``numbers``: the existing streams, by name."""
    session.owner = image.owner
    session.expiry_s = image.expiry_s
    session.left_ms = image.left_ms
    session.will = image.will
    session.received.update(image.received)
    session.subscriptions.update(
        (subscription.filter, Granted(subscription, identifier))
        for subscription, identifier in image.subscriptions
    )
    session.backlog.floors = floors(image.positions, numbers)
    for kept in image.flights:
        where: StreamPosition | str = kept.topic
        if kept.stream:
            number = numbers.get(kept.stream)
            if number is None:
                continue
            where = StreamPosition(number, kept.offset)
        session.in_flight[kept.packet_id] = InFlightMessage(where, kept.qos, released=kept.released)


def floors(positions: Mapping[str, int], numbers: Mapping[str, int]) -> dict[int, int]:
    """The offset from which each stream has to be read; 0 for streams not in ``positions``."""
    return {number: positions.get(name, 0) for name, number in numbers.items()}


def _positions(found: Mapping[int, int], names: Names) -> dict[str, int]:
    return {names[stream]: offset for stream, offset in found.items()}


def _kept(packet_id: int, flight: InFlightMessage, names: Names) -> KeptFlight:
    where = flight.where
    group = flight.lender.name if isinstance(flight.lender, SharedGroup) else ""
    if isinstance(where, str):
        return KeptFlight(packet_id, flight.qos, flight.released, "", 0, where, group)
    name = names.get(where.stream, "")
    return KeptFlight(packet_id, flight.qos, flight.released, name, where.offset, "", group)
