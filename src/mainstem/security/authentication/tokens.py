"""Tokens that authenticate a user: API tokens, and Kafka's delegation tokens (KIP-48).

An API token is ``mst_<id>_<secret>``; the catalogue keeps a hash of the secret. A delegation token
is an id and the HMAC of that id under the cluster's secret, used as a SCRAM user and password; the
HMAC is computed whenever it is needed and not stored.
"""

import base64
import hashlib
import hmac
from typing import Final

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest

API_PREFIX: Final = "mst_"
ID_BYTES: Final = 9
SECRET_BYTES: Final = 32
NAME_LENGTH_MAX: Final = 255
TOKENS_MAX: Final = 100_000
RENEWERS_MAX: Final = 1_000
DAY_MS: Final = 86_400_000
LIFETIME_MS_MAX: Final = 7 * DAY_MS
RENEWAL_MS: Final = DAY_MS


class ApiToken(Struct, frozen=True, forbid_unknown_fields=True):
    """A stored API token. ``roles`` None: it has the rights of its owner."""

    id: str
    owner: str
    digest: bytes
    name: str
    created_ms: int
    expires_ms: int | None = None
    roles: tuple[str, ...] | None = None


class DelegationToken(Struct, frozen=True, forbid_unknown_fields=True):
    """A delegation token without its HMAC."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_valid(self, now_ms: int) -> bool:
        """Whether it may be used to log in."""
        return now_ms < min(self.expires_ms, self.max_ms)

    def may_be_changed_by(self, principal: str) -> bool:
        """Whether that principal may renew or expire it."""
        return principal in (self.owner, *self.renewers)


def make_api_token(chance: bytes) -> tuple[str, str, bytes]:
    """(id, token, digest) made of random bytes."""
    assert len(chance) == ID_BYTES + SECRET_BYTES, "as many random bytes as id and secret have"
    token_id = _text(chance[:ID_BYTES])
    secret = _text(chance[ID_BYTES:])
    return token_id, f"{API_PREFIX}{token_id}_{secret}", digest(secret)


def split_api_token(text: str) -> tuple[str, str] | None:
    """(id, secret) of a token; None where the text is something else."""
    if not text.startswith(API_PREFIX):
        return None
    # The alphabet of the id has no underscore, so the first one ends it.
    token_id, mark, secret = text.removeprefix(API_PREFIX).partition("_")
    return (token_id, secret) if mark and token_id and secret else None


def digest(secret: str) -> bytes:
    """The stored hash of a secret: it has 256 random bits, so a fast hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


def is_right(token: ApiToken, secret: str, now_ms: int) -> bool:
    """Whether the secret belongs to the token and the token has not expired."""
    right = hmac.compare_digest(token.digest, digest(secret))
    return right and (token.expires_ms is None or now_ms < token.expires_ms)


def delegation_hmac(cluster_secret: bytes, token_id: str) -> bytes:
    """The HMAC with which a client authenticates by a delegation token."""
    return hmac.digest(cluster_secret, token_id.encode(), "sha512")


def delegation_password(hmac_bytes: bytes) -> str:
    """The form in which clients use the HMAC as a password."""
    return base64.b64encode(hmac_bytes).decode()


def lifetime_ms(asked_ms: int, *, most_ms: int = LIFETIME_MS_MAX) -> int:
    """The maximum lifetime of a delegation token; -1 requests the largest."""
    if asked_ms < -1:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"a lifetime of {asked_ms} ms")
    return most_ms if asked_ms <= 0 else min(asked_ms, most_ms)


def _text(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()
