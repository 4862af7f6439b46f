"""The handshake of the first release, as it is installed at users: version 1 and no other."""

import hmac

import msgspec

from mainstem.cluster.peers.handshake import Side

NONCE_BYTES = 32


class FirstHello(msgspec.Struct, frozen=True, array_like=True):
    version: int
    cluster: str
    node: int
    broker_epoch: int
    nonce: bytes
    proof: bytes = b""


encode = msgspec.msgpack.Encoder().encode


class FirstRelease:
    """One side of its handshake."""

    def __init__(self, side: Side, node: int, secret: bytes) -> None:
        self._side = side
        self._secret = secret
        self._own = FirstHello(1, "c", node, 7, bytes([node]) * NONCE_BYTES)
        self._other: FirstHello | None = None
        self.is_proved = False

    @property
    def hello(self) -> bytes:
        return encode(self._own)

    def on_message(self, data: bytes) -> list[bytes]:
        if self._other is not None:
            [proof] = msgspec.msgpack.decode(data)
            self.is_proved = proof == self._proof("dialler", self._other, self._own)
            return []
        hello = self._other = msgspec.msgpack.decode(data, type=FirstHello)
        if hello.version != 1:
            raise ValueError(f"version {hello.version}; this is version 1")
        if self._side == "listener":
            proof = self._proof("listener", hello, self._own)
            return [encode(msgspec.structs.replace(self._own, proof=proof))]
        self.is_proved = hello.proof == self._proof("listener", self._own, hello)
        return [encode([self._proof("dialler", self._own, hello)])]

    def _proof(self, side: Side, dialler: FirstHello, listener: FirstHello) -> bytes:
        said = encode(
            [side, *((h.cluster, h.node, h.broker_epoch, h.nonce) for h in (dialler, listener))]
        )
        return hmac.digest(self._secret, b"mainstem peers" + said, "sha256")
