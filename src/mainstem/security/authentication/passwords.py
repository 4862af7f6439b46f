"""Stored passwords: Argon2id, or the SCRAM keys of a user without an Argon2id hash.

Checking is slow on purpose (tens of milliseconds), so it runs on a separate thread, and successful
checks are cached for a while under a key that only this process has.
"""

import functools
import hashlib
import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from mainstem.model import scram
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.scram import ScramCredential

if TYPE_CHECKING:
    from argon2 import PasswordHasher

PASSWORD_LENGTH_MAX: Final = 1_024
REMEMBERED_MAX: Final = 10_000
REMEMBERED_S: Final = 300.0


class Credentials(Struct, frozen=True, forbid_unknown_fields=True):
    """The stored credentials of one user."""

    argon2: str | None = None
    scram: tuple[ScramCredential, ...] = ()

    def for_mechanism(self, mechanism: str) -> ScramCredential | None:
        """The keys for one SCRAM mechanism."""
        return next((each for each in self.scram if each.mechanism == mechanism), None)


def check_password_length(password: str) -> None:
    """Refuse an invalid password.

    Raises:
        InvalidRequest: it is empty or too long.
    """
    if not 0 < len(password) <= PASSWORD_LENGTH_MAX:
        raise InvalidRequest(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a password of {len(password)} characters",
            remedy=f"use 1 to {PASSWORD_LENGTH_MAX}",
        )


def make_credentials(password: str, salts: Sequence[bytes]) -> Credentials:
    """Everything that lets a user log in with a password, by any mechanism. Slow."""
    check_password_length(password)
    return Credentials(
        argon2=_hasher().hash(password),
        scram=tuple(
            scram.make_credential(mechanism, password, salt=salt, iterations=scram.ITERATIONS_MIN)
            for mechanism, salt in zip(scram.ALGORITHMS, salts, strict=True)
        ),
    )


def is_right(credentials: Credentials | None, password: str) -> bool:
    """Whether it is the user's password. Slow, and equally slow for an unknown user."""
    if len(password) > PASSWORD_LENGTH_MAX:
        return False
    if credentials is None or not (credentials.argon2 or credentials.scram):
        _verified(_decoy(), password)
        return False
    if credentials.argon2 is not None:
        return _verified(credentials.argon2, password)
    return scram.matches(credentials.scram[0], password)


def _verified(stored: str, password: str) -> bool:
    from argon2.exceptions import InvalidHashError, VerificationError  # noqa: PLC0415

    try:
        return _hasher().verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


@functools.cache
def _hasher() -> "PasswordHasher":
    # Imported when needed: most nodes on loopback never check a password.
    from argon2 import PasswordHasher  # noqa: PLC0415

    # 19 MiB and two passes: the smallest setting that OWASP recommends, about 20 ms. More would let
    # a few wrong passwords per second keep a core busy.
    return PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)


@functools.cache
def _decoy() -> str:
    """A hash to check passwords of unknown users against, so that timing is the same."""
    return _hasher().hash("the password of unknown users")


class PasswordCache:
    """Cache of correct passwords, so that not every HTTP request costs an Argon2 check.

    Holds keyed hashes only. Any change of credentials clears it.
    """

    def __init__(self, clock: Clock, key: bytes) -> None:
        self._now = clock.monotonic
        self._key = key
        self._until: dict[bytes, float] = {}

    def knows(self, user: str, password: str) -> bool:
        """Whether this password was correct recently."""
        return self._until.get(self._mark(user, password), 0.0) > self._now()

    def remember(self, user: str, password: str) -> None:
        """Remember that a password was correct."""
        if len(self._until) >= REMEMBERED_MAX:
            self._until.clear()
        self._until[self._mark(user, password)] = self._now() + REMEMBERED_S

    def forget_all(self) -> None:
        """Clear the cache, because a credential has changed."""
        self._until.clear()

    def _mark(self, user: str, password: str) -> bytes:
        text = f"{len(user)}:{user}:{password}".encode()
        return hmac.digest(self._key, hashlib.sha256(text).digest(), "sha256")
