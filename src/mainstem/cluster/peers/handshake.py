"""How two nodes prove to each other that they belong to one cluster, and agree on a version.

    dialler                                    listener
    Hello(who, versions, nonce, share)  ───▶
                                        ◀───  Hello(who, versions, nonce, share)
                                        ◀───  Proof
    Proof                               ───▶

A proof is an HMAC with the cluster's secret over both hellos, byte for byte, and the side that
proves: it cannot be made without the secret, nor sent back, nor used again, and nothing that was
said can be changed on the way. While a secret is replaced a node knows two and proves both: one
that the other side knows is enough. A node that is about to join knows the secret and not yet the
cluster's name: it says none, and is told. Pure.

Version 1 puts the listener's proof into its hello, and proves names and nonces only. So that nobody
in between can make two nodes believe that the other one is old, the highest version is part of the
nonce as well, as in RFC 8446 §4.1.3: a nonce that announces more than the hello offers is refused.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

from mainstem.cluster.peers.versions import (
    FRAMES_PROTECTED_SINCE,
    LOWEST_VERSION,
    OWN_VERSIONS,
    Versions,
    common_version,
)
from mainstem.cluster.secrets import SECRETS_MAX, checked_secrets
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.ids import NodeId

if TYPE_CHECKING:
    # Its ciphers take 7 MB, which a lone node can do without.
    from mainstem.cluster.peers.session_keys import KeyExchange, SessionKeys

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
NO_CLUSTER: Final = ""
"""The name of a cluster that a node does not know yet."""
_MARK: Final = b"mspeers"
CHANCE_BYTES: Final = NONCE_BYTES - len(_MARK) - 1
Side = Literal["dialler", "listener"]
T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Who is there. Releases before 0.2 end with the proof and ignore what follows it."""

    version: int
    cluster: str
    node: NodeId
    broker_epoch: int
    nonce: bytes
    proof: bytes = b""
    lowest: int = 0
    highest: int = 0
    share: bytes = b""
    encrypts: bool = False
    """Whether others could read what this side sends: one side that says so is enough."""

    @property
    def versions(self) -> Versions:
        """What the node offers."""
        if not self.highest:
            return Versions(self.version, self.version)
        return Versions(self.lowest, self.highest)


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """That a side knows the secret."""

    proof: bytes


_hellos = msgspec.msgpack.Decoder(Hello)
_proofs = msgspec.msgpack.Decoder(Proof)
encode = msgspec.msgpack.Encoder().encode


def own_hello(
    *,
    cluster: str,
    node: NodeId,
    broker_epoch: int,
    chance: bytes,
    share: bytes,
    versions: Versions = OWN_VERSIONS,
) -> Hello:
    """What a node says of itself, with ``CHANCE_BYTES`` of chance and its half of the keys."""
    assert len(chance) == CHANCE_BYTES, "a nonce has one size"
    return Hello(
        version=versions.lowest,
        cluster=cluster,
        node=node,
        broker_epoch=broker_epoch,
        nonce=chance + _MARK + bytes([versions.highest]),
        lowest=versions.lowest,
        highest=versions.highest,
        share=share,
    )


class Handshake:
    """One side of one handshake.

    Args:
        side: who dialled.
        own: what this node says of itself.
        exchange: the key exchange that ``own`` holds a half of.
        secrets: the cluster's secrets; one that both sides know is enough.
        expected: the node that was dialled.
        allows_cleartext: whether a version that cannot encrypt is used where others could read it.
    """

    def __init__(
        self,
        side: Side,
        own: Hello,
        exchange: "KeyExchange",
        secrets: Sequence[bytes],
        expected: NodeId | None = None,
        *,
        allows_cleartext: bool = False,
    ) -> None:
        self.side: Side = side
        self._own = own
        self._exchange = exchange
        self._secrets = checked_secrets(secrets)
        self._expected = expected
        self._allows_cleartext = allows_cleartext
        self._hellos = {side: encode(own)}
        self.other: Hello | None = None
        self.version = 0
        self.is_proved = False
        self.keys: SessionKeys | None = None
        """The keys of the connection; None if the version has none, or nothing is proved yet."""

    @property
    def encrypts(self) -> bool:
        """Whether frames are to be encrypted."""
        return self._own.encrypts or (self.other is not None and self.other.encrypts)

    def on_connected(self, *, is_private: bool) -> list[bytes]:
        """The connection is there; what this side says now.

        Args:
            is_private: whether nobody else can read what travels.
        """
        self._own = msgspec.structs.replace(self._own, encrypts=not is_private)
        self._hellos[self.side] = encode(self._own)
        return [self.hello] if self.side == "dialler" else []

    @property
    def hello(self) -> bytes:
        """What this side says of itself."""
        return self._hellos[self.side]

    def on_message(self, data: bytes | memoryview) -> list[bytes]:
        """What the other side said; the replies that are due.

        Raises:
            Corrupt: the other side is not who it has to be.
        """
        if self.other is None:
            return self._on_hello(data)
        return self._on_proof(_decoded(_proofs, data).proof)

    def _on_hello(self, data: bytes | memoryview) -> list[bytes]:
        hello = _decoded(_hellos, data)
        self._check_hello(hello)
        self.version = common_version(self._own.versions, hello.versions, hello.node)
        _check_offer(hello)
        self.other = hello
        if self.version < FRAMES_PROTECTED_SINCE:
            self._check_cleartext(hello)
            return self._on_old_hello(hello)
        self._hellos["listener" if self.side == "dialler" else "dialler"] = bytes(data)
        if self.side == "dialler":
            return []
        return [self.hello, self._own_proof()]

    def _check_hello(self, hello: Hello) -> None:
        names = {hello.cluster, self._own.cluster} - {NO_CLUSTER}
        if len(names) > 1:
            raise Corrupt(
                f"a node of cluster {hello.cluster!r}; this is {self._own.cluster!r}",
                remedy="let nodes join their own cluster",
            )
        if len(hello.nonce) != NONCE_BYTES:
            raise Corrupt("a node showed no proper nonce")
        if self._expected is not None and hello.node != self._expected:
            raise Corrupt(
                f"node {hello.node} answers where node {self._expected} should be",
                remedy="give every node an id and an address of its own",
            )

    def _check_cleartext(self, hello: Hello) -> None:
        if self.encrypts and not self._allows_cleartext:
            raise Corrupt(
                f"node {hello.node} speaks version {self.version} of the protocol between nodes, "
                "which does not encrypt, and is on another machine",
                subject=f"node {hello.node}",
                remedy="install the release that this node runs there, set cluster.tls on all "
                "nodes, or pass --insecure until all nodes are upgraded",
            )

    def _on_old_hello(self, hello: Hello) -> list[bytes]:
        if self.side == "listener":
            return [encode(msgspec.structs.replace(self._own, proof=self._own_proof_bytes()))]
        return self._on_proof(hello.proof)

    def _on_proof(self, proofs: bytes) -> list[bytes]:
        assert self.other is not None, "a proof follows a hello"
        by: Side = "listener" if self.side == "dialler" else "dialler"
        shown = [proofs[at : at + PROOF_BYTES] for at in range(0, len(proofs), PROOF_BYTES)]
        shared = [
            secret
            for secret in self._secrets
            if any(
                hmac.compare_digest(proof, self._proof(secret, by)) for proof in shown[:SECRETS_MAX]
            )
        ]
        if not shared:
            raise Corrupt(
                f"node {self.other.node} does not know the cluster's secret",
                remedy="give every node the same cluster secret",
            )
        if self.version >= FRAMES_PROTECTED_SINCE:
            hello = hashlib.sha256(self._transcript()).digest()
            self.keys = self._exchange.keys(self.other.share, hello, shared)
        self.is_proved = True
        return [self._own_proof()] if self.side == "dialler" else []

    def _own_proof(self) -> bytes:
        return encode(Proof(self._own_proof_bytes()))

    def _own_proof_bytes(self) -> bytes:
        return b"".join(self._proof(secret, self.side) for secret in self._secrets)

    def _proof(self, secret: bytes, by: Side) -> bytes:
        if self.version >= FRAMES_PROTECTED_SINCE:
            hello = b"mainstem peers 2 " + by.encode() + self._transcript()
            return hmac.digest(secret, hello, "sha256")
        assert self.other is not None, "names are known before they are proved"
        own, other = self._own, self.other
        pair = (own, other) if self.side == "dialler" else (other, own)
        named = [(h.cluster, h.node, h.broker_epoch, h.nonce) for h in pair]
        return hmac.digest(secret, b"mainstem peers" + encode([by, *named]), "sha256")

    def _transcript(self) -> bytes:
        return encode([self._hellos["dialler"], self._hellos["listener"]])


def _check_offer(hello: Hello) -> None:
    """Refuse an offer that was cut short between the nodes."""
    marked = hello.nonce[CHANCE_BYTES:-1] == _MARK
    announced = hello.nonce[-1] if marked else LOWEST_VERSION
    if announced != hello.versions.highest:
        raise Corrupt(
            f"node {hello.node} announces version {announced} and offers {hello.versions}: "
            "its offer was changed between the nodes",
            remedy="look for what stands between the nodes, and encrypt with cluster.tls",
        )


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a handshake of a node: {error}") from error
