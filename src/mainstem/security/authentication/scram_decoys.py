"""Made-up SCRAM keys for unknown users, so that user names cannot be probed.

A made-up name looks like a user's: its salt is the same at every node and after every restart,
since it comes from a secret of the catalogue, and its number of iterations and the length of its
salt are those of some user.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from mainstem.model import scram
from mainstem.model.scram import ScramCredential
from mainstem.security.authentication.passwords import Credentials

_PURPOSE: Final = b"mainstem scram decoys"


class CredentialShape(NamedTuple):
    """What a client sees of a user's keys besides the salt's bytes."""

    iterations: int
    salt_bytes: int


USUAL_SHAPE: Final = CredentialShape(scram.ITERATIONS_MIN, scram.SALT_BYTES)


class ScramDecoys:
    """Makes SCRAM keys for unknown users, so that names cannot be probed.

    Args:
        secret: the cluster's secret for this; None while there is none.
        users: every user with a password.
        spare: a key to use while there is no secret.
    """

    def __init__(
        self,
        secret: Callable[[], bytes | None],
        users: Callable[[], Mapping[str, Credentials]] = dict,
        spare: bytes = b"",
    ) -> None:
        self._secret = secret
        self._users = users
        self._shapes: dict[str, tuple[CredentialShape, ...]] = {}
        self._spare = spare

    def of_user(self, user: str, mechanism: str, /) -> ScramCredential:
        """Keys that match no password."""
        seed = self._seed("user", user, mechanism)
        shapes = self._shapes_of(mechanism) or (USUAL_SHAPE,)
        shape = shapes[int.from_bytes(seed[:8]) % len(shapes)]
        key = _stretched(seed, b"key", scram.KEY_BYTES[mechanism])
        salt = _stretched(seed, b"salt", shape.salt_bytes)
        return ScramCredential(mechanism, salt, shape.iterations, key, key)

    def of_token(self, token_id: str, mechanism: str, /) -> ScramCredential:
        """Keys that match no token, computed with as much work as those of a token."""
        unknown = self._seed("password", token_id, mechanism).hex()
        return self.token_keys(token_id, unknown, mechanism)

    def token_keys(self, token_id: str, password: str, mechanism: str) -> ScramCredential:
        """The keys of a token, which are not stored, with the salt that its id always has."""
        seed = self._seed("token", token_id, mechanism)
        salt = _stretched(seed, b"salt", USUAL_SHAPE.salt_bytes)
        return scram.make_credential(
            mechanism, password, salt=salt, iterations=USUAL_SHAPE.iterations
        )

    def credentials_changed(self) -> None:
        """Refresh the iterations and salt lengths from the keys of users."""
        self._shapes.clear()

    def _shapes_of(self, mechanism: str) -> tuple[CredentialShape, ...]:
        known = self._shapes.get(mechanism)
        if known is None:
            every = (user.for_mechanism(mechanism) for user in self._users().values())
            found = {
                CredentialShape(each.iterations, len(each.salt))
                for each in every
                if each is not None
            }
            known = self._shapes[mechanism] = tuple(sorted(found))
        return known

    def _seed(self, kind: str, name: str, mechanism: str) -> bytes:
        key = hmac.digest(self._secret() or self._spare, _PURPOSE, "sha512")
        return hmac.digest(key, f"{kind}:{mechanism}:{name}".encode(), "sha512")


def _stretched(seed: bytes, purpose: bytes, size: int) -> bytes:
    return hashlib.shake_256(purpose + seed).digest(size)
