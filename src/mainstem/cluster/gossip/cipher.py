"""Encrypts and authenticates gossip with a shared key, so that only cluster nodes take part.

A sealed message is a version, a random nonce, and the output of AES-GCM; the name of the
cluster is authenticated with it. Bytes of another cluster, altered ones and plain ones are
refused. The first key seals; every key opens, so that keys can be rotated node by node. A
replayed message does no harm: its claims do not outrank what is known, and an answer
counts only for the probe that is open.
"""

from collections.abc import Callable, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mainstem.cluster.secrets import checked_secrets
from mainstem.model.errors import Corrupt

VERSION = b"\x01"
NONCE_BYTES = 12
TAG_BYTES = 16
OVERHEAD_BYTES = len(VERSION) + NONCE_BYTES + TAG_BYTES


class GossipCipher:
    """Seals and opens messages between the nodes of one cluster.

    Args:
        cluster: the cluster's name.
        secrets: the shared secrets, the current one first.
        random_bytes: returns so many unpredictable bytes.

    Raises:
        InvalidRequest: a secret is too short.
    """

    def __init__(
        self, cluster: str, secrets: Sequence[bytes], random_bytes: Callable[[int], bytes]
    ) -> None:
        self._cluster = cluster.encode()
        self._random_bytes = random_bytes
        self._ciphers: list[AESGCM]
        self.know(secrets)

    def know(self, secrets: Sequence[bytes]) -> None:
        """The cluster's secrets have changed."""
        self._ciphers = [AESGCM(_key(secret)) for secret in checked_secrets(secrets)]

    def seal(self, message: bytes) -> bytes:
        """The message, encrypted and authenticated."""
        nonce = self._random_bytes(NONCE_BYTES)
        return VERSION + nonce + self._ciphers[0].encrypt(nonce, message, self._cluster)

    def open(self, sealed: bytes) -> bytes:
        """The decrypted message.

        Raises:
            Corrupt: it was not sealed by a node of this cluster, or was altered in transit.
        """
        if sealed[:1] != VERSION or len(sealed) < OVERHEAD_BYTES:
            raise Corrupt("not sealed by a node of this cluster")
        nonce, body = sealed[1 : 1 + NONCE_BYTES], sealed[1 + NONCE_BYTES :]
        for cipher in self._ciphers:
            try:
                return cipher.decrypt(nonce, body, self._cluster)
            except InvalidTag:
                continue
        raise Corrupt(
            "not sealed by a node of this cluster",
            remedy="give every node the same cluster secret and cluster name",
        )


def _key(secret: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=b"mainstem gossip").derive(secret)
