"""Derives the keys of one connection between two nodes: X25519, then HKDF.

Every connection has its own exchange, so that a secret that leaks later does not
decrypt recorded traffic (forward secrecy). The secrets that both nodes have are part of the keys,
and so is the transcript of the handshake.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mainstem.model.errors import Corrupt

SHARE_BYTES: Final = 32
KEY_BYTES: Final = 32
_INFO: Final = b"mainstem peers 2 keys"


class SessionKeys(NamedTuple):
    """One key for each direction."""

    dialler: bytes
    listener: bytes


class KeyExchange:
    """This node's half of one key exchange.

    Args:
        random_bytes: returns so many unpredictable bytes.
    """

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._private = X25519PrivateKey.from_private_bytes(random_bytes(SHARE_BYTES))
        self.share = self._private.public_key().public_bytes_raw()

    def keys(self, share: bytes, transcript: bytes, secrets: Iterable[bytes]) -> SessionKeys:
        """Derive the keys of the connection.

        Args:
            share: the other node's half.
            transcript: a digest of both sides' messages.
            secrets: the secrets that both sides have proved.

        Raises:
            Corrupt: the other half is not a valid key.
        """
        try:
            agreed = self._private.exchange(X25519PublicKey.from_public_bytes(share))
        except ValueError as error:
            raise Corrupt(f"a node sent an invalid key: {error}") from error
        material = agreed + b"".join(len(s).to_bytes(4) + s for s in sorted(secrets))
        made = HKDF(SHA256(), 2 * KEY_BYTES, salt=transcript, info=_INFO).derive(material)
        return SessionKeys(made[:KEY_BYTES], made[KEY_BYTES:])
