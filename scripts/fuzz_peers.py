"""Feeds random and mutated bytes to what nodes read from each other: frames, handshake, messages.

Cases are named and repeated as those of ``fuzz_codec``. Clean means: what is read survives another
round trip, everything else raises ``Corrupt``, a handshake that was changed proves nothing, frames
come out as they went in however they were cut, no case takes long, memory stays bounded.
"""

import random
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple, get_args

import msgspec
from msgspec import inspect
from scripts.fuzz_codec import Unclean, main, mutate

from mainstem.cluster.gossip import packets
from mainstem.cluster.gossip.cipher import GossipCipher
from mainstem.cluster.peers.error_codec import decode_error, encode_error
from mainstem.cluster.peers.frames import FrameDecoder, FrameKind, header
from mainstem.cluster.peers.handshake import (
    CHANCE_BYTES,
    Handshake,
    Side,
    own_hello,
)
from mainstem.cluster.peers.session_keys import KeyExchange
from mainstem.cluster.raft.messages import RaftMessage, decode_message, encode_message
from mainstem.model.errors import Corrupt
from mainstem.model.ids import NodeId
from mainstem.streams.replica import messages

SECRET: Final = b"a secret of thirty-two bytes or m"
BODY_BYTES_MAX: Final = 4096
SAMPLES_PER_KIND: Final = 64
NUMBERS: Final = (0, 1, 2, 7, 100, 2**31, 2**53, 2**63 - 1)


class Codec(NamedTuple):
    """One kind of message: how to read it, how to write what was read, some that can be read."""

    read: Callable[[bytes], Any]
    write: Callable[[Any], bytes]
    samples: list[bytes]


def _codecs(chance: random.Random) -> tuple[Codec, ...]:
    def samples(*kinds: Any) -> list[bytes]:
        shapes = [inspect.type_info(kind) for kind in kinds]
        drawn = [_draw(chance, shape) for shape in shapes for _ in range(SAMPLES_PER_KIND)]
        return [msgspec.msgpack.encode(each) for each in drawn]

    ranges = get_args(messages.AnyMessage)
    return (
        Codec(decode_message, encode_message, samples(RaftMessage)),
        Codec(_range_message, _range_bytes, samples(*ranges)),
        Codec(packets.decode_packet, packets.encode, samples(packets.Packet)),
        Codec(packets.decode_everything, packets.encode, samples(packets.Everything)),
        Codec(decode_error, encode_error, samples(tuple[str, str, str, str, str])),
    )


def _range_message(data: bytes) -> Any:
    return messages.decode(memoryview(len(data).to_bytes(4, "big") + data))[0]


def _range_bytes(found: Any) -> bytes:
    return messages.encode(found)[4:]


class PeersFuzzer:
    """Runs cases by index."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._chance = random.Random()  # noqa: S311 - cases must be repeatable
        self._codecs = _codecs(random.Random(seed))  # noqa: S311 - as above
        self._seal = GossipCipher("fuzzed", [SECRET], self._chance.randbytes)
        self.outcomes = {"accepted": 0, "refused": 0}

    def run(self, index: int) -> None:
        """Runs one case."""
        chance = self._chance
        chance.seed(self.seed << 64 | index)
        draw = chance.random()
        if draw < 0.6:
            self._message_case(chance)
        elif draw < 0.9:
            self._frames_case(chance)
        elif draw < 0.995:
            self._seal_case(chance)
        else:
            self._handshake_case(chance)

    def _message_case(self, chance: random.Random) -> None:
        codec = chance.choice(self._codecs)
        data = chance.choice(codec.samples)
        if chance.random() < 0.8:
            data = mutate(data, chance)
        try:
            found = codec.read(data)
        except Corrupt:
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        once = codec.write(found)
        if codec.write(codec.read(once)) != once:
            raise Unclean(f"{found!r} changes in a round trip")

    def _frames_case(self, chance: random.Random) -> None:
        """Frames in pieces of any size, some of them changed."""
        sent = [
            (chance.choice(list(FrameKind)), chance.randrange(12), chance.randrange(1 << 32), body)
            for body in (chance.randbytes(chance.randrange(300)) for _ in range(3))
        ]
        data = b"".join(
            header(kind, service, number, len(body)) + body for kind, service, number, body in sent
        )
        is_changed = chance.random() < 0.6
        if is_changed:
            data = mutate(data, chance)
        cutter = FrameDecoder(buffer_bytes=256, body_bytes_max=BODY_BYTES_MAX)
        found = []
        try:
            while data:
                room = cutter.free_space()
                piece = data[: min(len(room), chance.randrange(1, 400))]
                room[: len(piece)] = piece
                data = data[len(piece) :]
                frames = cutter.received(len(piece))
                found += [
                    (each.kind, each.service, each.number, bytes(each.body)) for each in frames
                ]
        except Corrupt:
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        if not is_changed and found != sent:
            raise Unclean("frames came out as others than they went in")

    def _seal_case(self, chance: random.Random) -> None:
        message = chance.randbytes(chance.randrange(200))
        sealed = self._seal.seal(message)
        data = mutate(sealed, chance) if chance.random() < 0.7 else sealed
        try:
            found = self._seal.open(data)
        except Corrupt:
            self.outcomes["refused"] += 1
            return
        self.outcomes["accepted"] += 1
        if data != sealed or found != message:
            raise Unclean("a packet that was changed was opened")

    def _handshake_case(self, chance: random.Random) -> None:
        """One message of a handshake is changed, or none."""
        sides = {"dialler": _side("dialler", 1, chance), "listener": _side("listener", 2, chance)}
        changed_at = chance.randrange(6)  # the exchange has three messages
        is_changed = False
        sent = [("listener", data) for data in sides["dialler"].on_connected(is_private=False)]
        sides["listener"].on_connected(is_private=False)
        for at in range(8):
            if not sent:
                break
            to, data = sent.pop(0)
            if at == changed_at:
                changed = mutate(data, chance)
                is_changed, data = changed != data, changed
            other = "dialler" if to == "listener" else "listener"
            try:
                sent += [(other, reply) for reply in sides[to].on_message(data)]
            except Corrupt:
                self.outcomes["refused"] += 1
                return
        self.outcomes["accepted"] += 1
        if is_changed and all(side.is_proved for side in sides.values()):
            raise Unclean("a handshake that was changed on its way is proved on both sides")


def _side(side: Side, node: int, chance: random.Random) -> Handshake:
    exchange = KeyExchange(chance.randbytes)
    own = own_hello(
        cluster="fuzzed",
        node=NodeId(node),
        broker_epoch=1,
        chance=chance.randbytes(CHANCE_BYTES),
        share=exchange.share,
    )
    return Handshake(side, own, exchange, [SECRET])


def _draw(chance: random.Random, shape: inspect.Type) -> Any:  # noqa: PLR0911 - a table
    """Mostly a value that fits, as msgpack carries it; sometimes anything."""
    if chance.random() < 0.01:
        return chance.choice([None, True, -1, 2**64 - 1, 1.5, "", "text", b"\xff" * 9, [], {}])
    match shape:
        case inspect.StructType(fields=fields) | inspect.NamedTupleType(fields=fields):
            tag = getattr(shape, "tag", None)
            values = [_draw(chance, field.type) for field in fields]
            return values if tag is None else [tag, *values]
        case inspect.UnionType(types=types):
            return _draw(chance, chance.choice(types))
        case inspect.EnumType(cls=kind):
            return chance.choice(list(kind)).value
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return [_draw(chance, item) for _ in range(chance.randrange(3))]
        case inspect.TupleType(item_types=items):
            return [_draw(chance, item) for item in items]
        case _:
            return _plain_value(chance, shape)


def _plain_value(chance: random.Random, shape: inspect.Type) -> Any:
    match shape:
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.IntType() | inspect.FloatType():
            return chance.choice(NUMBERS)
        case inspect.BytesType():
            return chance.randbytes(chance.randrange(40))
        case inspect.NoneType():
            return None
        case inspect.StrType():
            return chance.choice(["", "a", "unavailable", "TIMED_OUT", "größe", "x" * 300])
        case _:
            raise AssertionError(f"no value for {shape}")


if __name__ == "__main__":
    sys.exit(main(PeersFuzzer))
