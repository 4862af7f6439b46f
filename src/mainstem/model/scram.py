"""The arithmetic of SCRAM (RFC 5802, RFC 7677), shared by client and server.

    salted    = Hi(password, salt, iterations)             only the client needs it
    stored    = H(HMAC(salted, "Client Key"))              what a server keeps
    server    = HMAC(salted, "Server Key")                 what a server proves itself with

Stolen stored keys allow checking guesses, but no login.
"""

import hashlib
import hmac
from typing import Final

from msgspec import Struct

ALGORITHMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
KEY_BYTES: Final = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384  # Kafka's bound; more would keep a client busy with one login
SALT_BYTES: Final = 24


class ScramCredential(Struct, frozen=True):
    """The stored keys of a password for one mechanism."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """The salted password (``Hi``). This is the expensive step: milliseconds."""
    return hashlib.pbkdf2_hmac(ALGORITHMS[mechanism], password.encode(), salt, iterations)


def credential_of(
    mechanism: str, salted: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """The keys to store, from the salted password."""
    return ScramCredential(
        mechanism,
        salt,
        iterations,
        stored_key=digest(mechanism, client_key(mechanism, salted)),
        server_key=keyed(mechanism, salted, b"Server Key"),
    )


def make_credential(
    mechanism: str, password: str, *, salt: bytes, iterations: int
) -> ScramCredential:
    """The keys to store, from the password itself."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt=salt, iterations=iterations)


def client_key(mechanism: str, salted: bytes) -> bytes:
    """The secret that a login proves."""
    return keyed(mechanism, salted, b"Client Key")


def keyed(mechanism: str, key: bytes, text: bytes) -> bytes:
    """HMAC with the mechanism's hash."""
    return hmac.digest(key, text, ALGORITHMS[mechanism])


def digest(mechanism: str, data: bytes) -> bytes:
    """The mechanism's hash."""
    return hashlib.new(ALGORITHMS[mechanism], data).digest()


def exclusive_or(left: bytes, right: bytes) -> bytes:
    """Bitwise XOR of two strings of equal length."""
    assert len(left) == len(right), "keys of one mechanism have one length"
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(len(left))


def matches(credential: ScramCredential, password: str) -> bool:
    """Whether a password matches a credential. Expensive, as ``Hi`` is."""
    mechanism = credential.mechanism
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = digest(mechanism, client_key(mechanism, salted))
    return hmac.compare_digest(found, credential.stored_key)
