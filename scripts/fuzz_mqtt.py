"""Feeds random and mutated bytes to MQTT's codec and to WebSocket frames.

Cases are named and repeated as those of ``fuzz_codec``. Clean means: what is read survives another
round trip, everything else raises ``Malformed``, no case takes long, memory stays bounded.
"""

import random
import sys
from typing import Any

from scripts.fuzz_codec import Unclean, main, mutate

from mainstem.wire.mqtt.decoder import decode, frame_at
from mainstem.wire.mqtt.encoder import encode
from mainstem.wire.mqtt.kinds import V3_1_1, V5, Kind
from mainstem.wire.mqtt.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from mainstem.wire.mqtt.primitives import Malformed
from mainstem.wire.mqtt.properties import TABLE, WILL
from mainstem.wire.mqtt.reasons import Reason
from mainstem.wire.websocket import FrameReader, WebSocketError

PAYLOAD_BYTES_MAX = 1 << 16
_NUMBERS = {"byte": 0xFF, "two": 0xFFFF, "four": 0xFFFF_FFFF, "length": 268_435_455}
_ACKS = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)


class MqttFuzzer:
    """Runs cases by index."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random()  # noqa: S311 - cases must be repeatable
        self.outcomes = {"accepted": 0, "refused": 0}

    def run(self, index: int) -> None:
        """Runs one case."""
        chance = self._chance
        chance.seed(self.seed << 64 | index)
        if chance.random() < 0.9:
            self._packet(chance)
        else:
            self._frames(chance)

    def _packet(self, chance: random.Random) -> None:
        version = chance.choice((V3_1_1, V5))
        data = encode(_packet(chance, version), version)
        if chance.random() < 0.1:
            data = chance.randbytes(chance.randrange(2, 64))
        if chance.random() < 0.9:
            data = mutate(data, chance)
        try:
            head, size = frame_at(data, 0, len(data)) or (len(data), 0)
            found = decode(data[0] if data else 0, data[head : head + size], version)
        except Malformed:
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        spoken = found.version if isinstance(found, Connect) else version
        once = encode(found, spoken)
        head, _ = frame_at(once, 0, len(once)) or (0, 0)
        if decode(once[0], once[head:], spoken) != found:
            raise Unclean(f"{found!r} changes in a round trip")

    def _frames(self, chance: random.Random) -> None:
        payload = chance.randbytes(chance.randrange(200))
        mask = chance.randbytes(4)
        hidden = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        size = len(payload)
        length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2)
        data = bytes((chance.choice((0x82, 0x02, 0x89, 0x88)),)) + length + mask + hidden
        whole = list(FrameReader(PAYLOAD_BYTES_MAX).feed(data)) if data[0] in (0x82, 0x02) else None
        if whole is not None and whole[0][1] != payload:
            raise Unclean("a frame was not unmasked")
        reader = FrameReader(PAYLOAD_BYTES_MAX)
        try:
            for piece in (data, mutate(data, chance)):
                for _ in reader.feed(piece):
                    self.outcomes["accepted"] += 1
        except WebSocketError:
            self.outcomes["refused"] += 1


def _packet(chance: random.Random, version: int) -> Packet:
    makers = (_connect, _publish, _subscribe, _answer, _goodbye)
    return chance.choice(makers)(chance, version)


def _connect(chance: random.Random, version: int) -> Packet:
    will = None
    if chance.random() < 0.5:
        payload = chance.randbytes(chance.randrange(20))
        will = Will(
            "will", payload, chance.randrange(3), properties=_properties(chance, WILL, version)
        )
    return Connect(
        version=version,
        client_id=_text(chance),
        clean_start=chance.random() < 0.5,
        keep_alive_s=chance.randrange(65_536),
        username=_text(chance) if chance.random() < 0.5 else None,
        will=will,
        properties=_properties(chance, Kind.CONNECT, version),
    )


def _publish(chance: random.Random, version: int) -> Packet:
    qos = chance.randrange(3)
    return Publish(
        "t" + _text(chance),
        chance.randbytes(chance.randrange(50)),
        qos,
        retain=chance.random() < 0.5,
        packet_id=chance.randrange(1, 65_536) if qos else 0,
        properties=_properties(chance, Kind.PUBLISH, version),
    )


def _subscribe(chance: random.Random, version: int) -> Packet:
    number = chance.randrange(1, 65_536)
    if chance.random() < 0.5:
        wishes = tuple(Subscription(_text(chance), chance.randrange(3)) for _ in range(2))
        return Subscribe(number, wishes, _properties(chance, Kind.SUBSCRIBE, version))
    return Unsubscribe(number, (_text(chance),), _properties(chance, Kind.UNSUBSCRIBE, version))


def _answer(chance: random.Random, version: int) -> Packet:
    number = chance.randrange(1, 65_536)
    kind = chance.choice((*_ACKS, Kind.CONNACK, Kind.SUBACK, Kind.UNSUBACK))
    told = _properties(chance, kind, version)
    if kind in _ACKS:
        return Ack(kind, number, properties=told)
    if kind is Kind.CONNACK:
        return Connack(Reason.SUCCESS, properties=told)
    if kind is Kind.SUBACK:
        return Suback(number, (0, 1), told)
    return Unsuback(number, (0,) if version >= V5 else (), told)


def _goodbye(chance: random.Random, version: int) -> Packet:
    if version >= V5 and chance.random() < 0.3:
        return Auth(Reason.SUCCESS, _properties(chance, Kind.AUTH, version))
    if chance.random() < 0.3:
        return Pingreq()
    return Disconnect(Reason.SUCCESS, _properties(chance, Kind.DISCONNECT, version))


def _properties(chance: random.Random, packet: int, version: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if version < V5:
        return found
    for row in TABLE:
        if packet in row.packets and chance.random() < 0.3:
            value = _value(chance, row.form.read.__name__, row.least, row.most)
            found[row.name] = (value,) if row.repeats else value
    if "authentication_data" in found:
        found["authentication_method"] = "m"
    if "response_topic" in found:
        found["response_topic"] = "answers"
    return found


def _value(chance: random.Random, form: str, least: int, most: int | None) -> Any:
    if form in _NUMBERS:
        return chance.randint(least, _NUMBERS[form] if most is None else most)
    if form == "text":
        return _text(chance)
    if form == "binary":
        return chance.randbytes(chance.randrange(12))
    return _text(chance), _text(chance)


def _text(chance: random.Random) -> str:
    return "".join(
        chr(chance.choice((65, 97, 228, 0x4E2D, 47))) for _ in range(chance.randrange(9))
    )


if __name__ == "__main__":
    sys.exit(main(MqttFuzzer))
