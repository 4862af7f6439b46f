"""How two nodes prove to each other that they belong to one cluster.

    dialler                                    listener
    Hello(who, cluster, nonce)  ────────▶
                                ◀────────  Hello(who, cluster, nonce, proof)
    Proof(proof)                ────────▶

A proof is an HMAC with the cluster's secret over both nonces, both names and the side that proves:
it cannot be made without the secret, nor sent back, nor used again. While a secret is replaced a
node knows two and proves both: one that the other side knows is enough. A node that is about to
join knows the secret and not yet the cluster's name: it says none, and is told. Pure.
"""

import hmac
from collections.abc import Sequence
from typing import Final, Literal, TypeVar

import msgspec

from mainstem.cluster.secrets import SECRETS_MAX, checked_secrets
from mainstem.model.errors import Corrupt
from mainstem.model.ids import NodeId

VERSION: Final = 1
NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
NEWCOMER: Final = ""
"""The name of a cluster that a node does not know yet."""
Side = Literal["dialler", "listener"]
T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who is there."""

    version: int
    cluster: str
    node: NodeId
    broker_epoch: int
    nonce: bytes
    proof: bytes = b""


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The dialler's half."""

    proof: bytes


_hellos = msgspec.msgpack.Decoder(Hello)
_proofs = msgspec.msgpack.Decoder(Proof)
encode = msgspec.msgpack.Encoder().encode


class Handshake:
    """One side of one introduction.

    Args:
        side: who dialled.
        own: what this node says of itself, with a nonce that chance made.
        secrets: the cluster's secrets; one that both sides know is enough.
        expected: the node that was dialled.
    """

    def __init__(
        self, side: Side, own: Hello, secrets: Sequence[bytes], expected: NodeId | None = None
    ) -> None:
        self.side: Side = side
        self._own = own
        self._secrets = checked_secrets(secrets)
        self._expected = expected
        self.other: Hello | None = None
        self.is_proved = False

    def begin(self) -> bytes:
        """What the dialler says first."""
        return encode(self._own)

    def on_message(self, data: bytes | memoryview) -> bytes | None:
        """What the other side said; the reply, if one is due.

        Raises:
            Corrupt: the other side is not who it has to be.
        """
        if self.other is None:
            return self._on_hello(data)
        self._check(_decoded(_proofs, data).proof, "dialler", self.other, self._own)
        self.is_proved = True
        return None

    def _on_hello(self, data: bytes | memoryview) -> bytes:
        hello = _decoded(_hellos, data)
        names = {hello.cluster, self._own.cluster} - {NEWCOMER}
        if hello.version != VERSION or len(names) > 1:
            raise Corrupt(
                f"a node of cluster {hello.cluster!r} with version {hello.version}; this is "
                f"{self._own.cluster!r} with version {VERSION}",
                remedy="let nodes join their own cluster",
            )
        if len(hello.nonce) != NONCE_BYTES:
            raise Corrupt("a node showed no proper nonce")
        if self._expected is not None and hello.node != self._expected:
            raise Corrupt(
                f"node {hello.node} answers where node {self._expected} should be",
                remedy="give every node an id and an address of its own",
            )
        self.other = hello
        if self.side == "listener":
            proof = self._proofs("listener", hello, self._own)
            return encode(msgspec.structs.replace(self._own, proof=proof))
        self._check(hello.proof, "listener", self._own, hello)
        self.is_proved = True
        return encode(Proof(self._proofs("dialler", self._own, hello)))

    def _proofs(self, side: Side, dialler: Hello, listener: Hello) -> bytes:
        return b"".join(self._proof(secret, side, dialler, listener) for secret in self._secrets)

    def _check(self, proofs: bytes, side: Side, dialler: Hello, listener: Hello) -> None:
        shown = [proofs[at : at + PROOF_BYTES] for at in range(0, len(proofs), PROOF_BYTES)]
        for secret in self._secrets:
            wanted = self._proof(secret, side, dialler, listener)
            if any(hmac.compare_digest(proof, wanted) for proof in shown[:SECRETS_MAX]):
                return
        raise Corrupt(
            "a node does not know the cluster's secret",
            remedy="give every node the same cluster secret",
        )

    @staticmethod
    def _proof(secret: bytes, side: Side, dialler: Hello, listener: Hello) -> bytes:
        said = encode(
            [side, *((h.cluster, h.node, h.broker_epoch, h.nonce) for h in (dialler, listener))]
        )
        return hmac.digest(secret, b"mainstem peers" + said, "sha256")


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise Corrupt(f"not an introduction of a node: {error}") from error
