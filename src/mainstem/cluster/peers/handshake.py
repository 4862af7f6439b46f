"""Mutual authentication of two nodes of one cluster, and choice of the protocol version.

    dialler                                    listener
    Hello(who, versions, nonce, share)  ───▶
                                        ◀───  Hello(who, versions, nonce, share)
                                        ◀───  Proof
    Proof                               ───▶

A proof is an HMAC with the cluster's secret over both hellos, byte for byte, and the side that
sends it: it cannot be made without the secret, nor reflected, nor replayed, and no
hello can be changed in transit. During rotation of the secret a node has two and proves both: one
that the other side has is enough. A joining node has the secret but not yet the
cluster's name: it sends none, and receives it. Pure.

Version 1 puts the listener's proof into its hello, and proves names and nonces only. To prevent a
downgrade by a man in the middle, the highest version is part of the
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
    # Imported late: its ciphers take 7 MB, which a single node does not need.
    from mainstem.cluster.peers.session_keys import KeyExchange, SessionKeys

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
NO_CLUSTER: Final = ""
"""Placeholder for the name of a cluster that a node has not learnt yet."""
_MARK: Final = b"mspeers"
CHANCE_BYTES: Final = NONCE_BYTES - len(_MARK) - 1
Side = Literal["dialler", "listener"]
T = TypeVar("T")


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """Identity of a node. Releases before 0.2 end with the proof and ignore what follows it."""

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
    """Whether the channel may be read by others: one side that sets it is enough."""

    @property
    def versions(self) -> Versions:
        """The versions that the node offers."""
        if not self.highest:
            return Versions(self.version, self.version)
        return Versions(self.lowest, self.highest)


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """Proof that a side has the secret."""

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
    """This node's hello, with ``CHANCE_BYTES`` of randomness and its half of the keys."""
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
        side: dialler or listener.
        own: this node's hello.
        exchange: the key exchange that ``own`` holds a half of.
        secrets: the cluster's secrets; one that both sides have is enough.
        expected: the node that was dialled.
        allows_cleartext: whether a version without encryption may be used across machines.
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
        """The keys of the connection; None if the version has none, or before the proof."""

    @property
    def encrypts(self) -> bool:
        """Whether frames are to be encrypted."""
        return self._own.encrypts or (self.other is not None and self.other.encrypts)

    def on_connected(self, *, is_private: bool) -> list[bytes]:
        """The connection is open; the messages this side sends first.

        Args:
            is_private: whether no other process can read the traffic.
        """
        self._own = msgspec.structs.replace(self._own, encrypts=not is_private)
        self._hellos[self.side] = encode(self._own)
        return [self.hello] if self.side == "dialler" else []

    @property
    def hello(self) -> bytes:
        """This side's hello."""
        return self._hellos[self.side]

    def on_message(self, data: bytes | memoryview) -> list[bytes]:
        """Handle a message of the other side; the replies to send.

        Raises:
            Corrupt: the other side failed to authenticate.
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
                remedy="add nodes only to the cluster they were created for",
            )
        if len(hello.nonce) != NONCE_BYTES:
            raise Corrupt("a node sent an invalid nonce")
        if self._expected is not None and hello.node != self._expected:
            raise Corrupt(
                f"node {hello.node} answered at the address of node {self._expected}",
                remedy="give every node its own id and address",
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
                f"node {self.other.node} does not have the cluster's secret",
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
        assert self.other is not None, "cluster names are compared before the proof"
        own, other = self._own, self.other
        pair = (own, other) if self.side == "dialler" else (other, own)
        named = [(h.cluster, h.node, h.broker_epoch, h.nonce) for h in pair]
        return hmac.digest(secret, b"mainstem peers" + encode([by, *named]), "sha256")

    def _transcript(self) -> bytes:
        return encode([self._hellos["dialler"], self._hellos["listener"]])


def _check_offer(hello: Hello) -> None:
    """Refuse an offer of versions that was altered in transit."""
    marked = hello.nonce[CHANCE_BYTES:-1] == _MARK
    announced = hello.nonce[-1] if marked else LOWEST_VERSION
    if announced != hello.versions.highest:
        raise Corrupt(
            f"node {hello.node} announces version {announced} and offers {hello.versions}: "
            "the offer was altered in transit",
            remedy="check proxies between the nodes, and encrypt with cluster.tls",
        )


def _decoded(decoder: "msgspec.msgpack.Decoder[T]", data: bytes | memoryview) -> T:
    try:
        return decoder.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a handshake of a node: {error}") from error
