"""Administration of delegation tokens (KIP-48): short-lived credentials of a user.

A token is an id and an HMAC. Clients log in with SCRAM: the id is the user, the HMAC in base64 the
password. The HMAC is the secret.
"""

import base64
import binascii
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.wire.kafka.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from mainstem.wire.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from mainstem.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from mainstem.wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

# These responses have an error number only.
_CAUSES: Final = {
    61: "delegation tokens are disabled",
    62: "there is no such token",
    63: "only its owner and its renewers may change a token",
    64: "a client that logged in with a token cannot create tokens",
    65: "no permission to see or create tokens of that user",
    66: "the token has expired",
    67: "the owner of a token must be a user",
}


class DelegationTokenInfo(Struct, frozen=True):
    """A token; ``hmac`` is its secret, in base64. Times are milliseconds since 1970."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: str

    def __repr__(self) -> str:
        return f"DelegationTokenInfo(id={self.id!r}, owner={self.owner!r})"


class DelegationTokenAdmin:
    """Administers delegation tokens; reached through ``Admin.delegation_tokens``."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def create(
        self, *, owner: str | None = None, renewers: Sequence[str] = (), lifetime_ms: int = -1
    ) -> DelegationTokenInfo:
        """Creates a token for the caller or another owner; -1 requests the longest lifetime."""
        kind, name = (None, None) if owner is None else _principal(owner)
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[CreatableRenewers(*_principal(each)) for each in renewers],
            max_lifetime_ms=lifetime_ms,
        )
        made: CreateDelegationTokenResponse = await self._cluster.call_controller(
            request, timeout_ms=self._timeout_ms
        )
        _check(made.error_code, owner or "delegation token")
        return DelegationTokenInfo(
            made.token_id,
            f"{made.principal_type}:{made.principal_name}",
            f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
            tuple(renewers),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
            base64.b64encode(bytes(made.hmac)).decode(),
        )

    async def find(self, owners: Collection[str] | None = None) -> list[DelegationTokenInfo]:
        """The tokens that the caller may see: all of them, or those of some owners."""
        asked = None
        if owners is not None:
            asked = [DescribeDelegationTokenOwner(*_principal(owner)) for owner in owners]

        async def attempt() -> list[DelegationTokenInfo]:
            response: DescribeDelegationTokenResponse = await self._cluster.call_any(
                DescribeDelegationTokenRequest(asked), timeout_ms=self._timeout_ms
            )
            _check(response.error_code, "delegation tokens")
            return [
                DelegationTokenInfo(
                    token.token_id,
                    f"{token.principal_type}:{token.principal_name}",
                    f"{token.token_requester_principal_type}:"
                    f"{token.token_requester_principal_name}",
                    tuple(f"{r.principal_type}:{r.principal_name}" for r in token.renewers),
                    token.issue_timestamp,
                    token.expiry_timestamp,
                    token.max_timestamp,
                    base64.b64encode(bytes(token.hmac)).decode(),
                )
                for token in response.tokens
            ]

        found = await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms)
        return sorted(found, key=lambda token: (token.owner, token.issued_ms, token.id))

    async def renew(self, hmac: str, period_ms: int = -1) -> int:
        """Renews a token for a time, -1: the default; returns when it expires."""
        response: RenewDelegationTokenResponse = await self._cluster.call_controller(
            RenewDelegationTokenRequest(_hmac(hmac), period_ms), timeout_ms=self._timeout_ms
        )
        _check(response.error_code, "delegation token")
        return response.expiry_timestamp_ms

    async def expire(self, hmac: str, period_ms: int = -1) -> int:
        """Expires a token after a time, -1: at once; returns when it expires."""
        response: ExpireDelegationTokenResponse = await self._cluster.call_controller(
            ExpireDelegationTokenRequest(_hmac(hmac), period_ms), timeout_ms=self._timeout_ms
        )
        _check(response.error_code, "delegation token")
        return response.expiry_timestamp_ms


def _check(number: int, subject: str) -> None:
    errors.check(number, _CAUSES.get(number), subject=subject)


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            "not a principal",
            subject=text,
            remedy="write a kind and a name, such as User:alice",
        )
    return kind, name


def _hmac(text: str) -> bytes:
    try:
        return base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "the HMAC of a token is not base64"
        ) from None
