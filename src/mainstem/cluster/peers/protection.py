"""Binds every frame of a connection to its handshake: AES-256-GCM, one key for each direction.

    header    body                            tag
    10 bytes  as it is, or encrypted          16 bytes

The nonce is the frame's number in its direction, which is not sent: a frame that was changed,
dropped, repeated, reordered, inserted or taken from another connection has the wrong tag, and ends
the connection. Between processes of one machine and inside TLS the body is not encrypted, since the
tag alone takes half the time.
"""

from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mainstem.cluster.peers.frames import HEADER, TAG_BYTES, Chunk
from mainstem.model.errors import Corrupt

JOINED_BYTES_MAX: Final = 16 * 1024
_HEADER_BYTES: Final = HEADER.size
# Far below the limit of a key (NIST SP 800-38D §8.3); the next connection has a new one.
FRAMES_PER_KEY_MAX: Final = 1 << 32


class FrameProtection:
    """Authenticates and encrypts the frames of one connection.

    Args:
        send: the key for frames that this node sends.
        receive: the key for frames of the other one.
        encrypts: whether bodies are encrypted.
    """

    def __init__(self, send: bytes, receive: bytes, *, encrypts: bool) -> None:
        self._seal = AESGCM(send).encrypt
        self._unseal = AESGCM(receive).decrypt
        self._encrypts = encrypts
        self.sent = 0
        self._received = 0

    def protect(self, header: bytes, chunks: Sequence[Chunk]) -> tuple[bytes, ...]:
        """The protected frame; the length in the header counts the tag."""
        number = self.sent
        assert number < FRAMES_PER_KEY_MAX, "no nonce is used twice"
        self.sent = number + 1
        if self._encrypts:
            return header, self._seal(number.to_bytes(12), b"".join(chunks), header)
        frame = b"".join((header, *chunks))
        tag = self._seal(number.to_bytes(12), b"", frame)
        # One piece is cheaper to send than two, as long as it is small.
        return (frame + tag,) if len(frame) <= JOINED_BYTES_MAX else (frame, tag)

    @property
    def is_used_up(self) -> bool:
        """Whether the key must not be used for another frame."""
        return self.sent >= FRAMES_PER_KEY_MAX

    def open(self, frame: memoryview) -> memoryview:
        """The body of a frame that arrived whole.

        Raises:
            Corrupt: it is not the next frame that the other node sent.
        """
        number = self._received
        self._received = number + 1
        try:
            if self._encrypts:
                sealed, header = frame[_HEADER_BYTES:], frame[:_HEADER_BYTES]
                return memoryview(self._unseal(number.to_bytes(12), sealed, header))
            self._unseal(number.to_bytes(12), frame[-TAG_BYTES:], frame[:-TAG_BYTES])
        except InvalidTag:
            raise Corrupt(
                f"frame {number} is not the one the node sent: bytes were changed, "
                "dropped, repeated or inserted in transit",
                remedy="check proxies between the nodes; the connection is reopened",
            ) from None
        return frame[_HEADER_BYTES:-TAG_BYTES]
