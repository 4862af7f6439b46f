"""Tokens behind the counter: who may make, see and end them.

Everybody may make tokens for himself, unless he came with a token: what a token lets one do ends
with it. Whoever may alter the cluster may make and end API tokens of others.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from mainstem.broker.security_api import ApiToken, Caller, DelegationToken, IssuedToken
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement.security_records import (
    CreateApiToken,
    DeleteApiToken,
    DeleteDelegationTokens,
    SetDelegationToken,
    SetTokenSecret,
)
from mainstem.placement.security_table import SecurityTable
from mainstem.placement.service import PlacementService
from mainstem.security import tokens
from mainstem.security.acl import CLUSTER_NAME, Operation, ResourceType
from mainstem.security.audit import Audit
from mainstem.security.principals import ANONYMOUS, USER, parse_principal

SECRET_BYTES: Final = 64
SWEEP_INTERVAL_S: Final = 600.0
ID_BYTES: Final = 16
LIFETIME_MS_MAX: Final = 10 * 365 * tokens.DAY_MS


class TokenDesk:
    """API tokens and delegation tokens."""

    def __init__(self, placement: PlacementService, clock: Clock, audit: Audit) -> None:
        self._placement = placement
        self._wall_ms = clock.wall_ms
        self._audit = audit
        self._by_hmac: dict[bytes, str] = {}
        self.tokens_changed()

    @property
    def _table(self) -> SecurityTable:
        return self._placement.catalogue.security

    # API tokens

    def api_tokens(self, caller: Caller) -> Sequence[ApiToken]:
        """All for those who may look at the cluster, others see their own."""
        everything = caller.rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        own = str(caller.identity.principal)
        return [t for t in self._table.api_tokens.values() if everything or t.owner == own]

    async def create_api_token(
        self,
        caller: Caller,
        *,
        name: str,
        owner: str | None = None,
        lifetime_ms: int | None = None,
        roles: tuple[str, ...] | None = None,
    ) -> tuple[ApiToken, str]:
        """A new token and its text, which is told this once."""
        own = str(caller.identity.principal)
        owner = owner or own
        if owner != own:
            caller.rights.need(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        self._may_make(caller, owner)
        if lifetime_ms is not None and not 0 < lifetime_ms <= LIFETIME_MS_MAX:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"a lifetime of {lifetime_ms} ms")
        token_id, text, digest = tokens.make_api_token(
            secrets.token_bytes(tokens.ID_BYTES + tokens.SECRET_BYTES)
        )
        now_ms = self._wall_ms()
        expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        token = ApiToken(token_id, owner, digest, name, now_ms, expires_ms, roles)
        await self._placement.submit(CreateApiToken(token))
        self._audit.changed(caller.identity, caller.address, "token created", token_id)
        return token, text

    async def delete_api_token(self, caller: Caller, token_id: str) -> None:
        """Let a token be worth nothing. Those of others look as if they were not there."""
        token = self._table.api_token(token_id)
        own = token is not None and token.owner == str(caller.identity.principal)
        if not own or caller.identity.by_token:
            caller.rights.need(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        await self._placement.submit(DeleteApiToken(token_id))
        self._audit.changed(caller.identity, caller.address, "token deleted", token_id)

    # Delegation tokens

    async def ensure_token_secret(self) -> bytes:
        """The secret of the catalogue that tokens are made with, made if it is not there."""
        known = self._table.token_secret()
        if known is not None:
            return known
        return await self._placement.submit(SetTokenSecret(secrets.token_bytes(SECRET_BYTES)))

    async def issue_delegation_token(
        self, caller: Caller, *, owner: str | None, renewers: Sequence[str], lifetime_ms: int
    ) -> IssuedToken:
        """A new token; for somebody else only with the right to do so."""
        requester = str(caller.identity.principal)
        owner = owner or requester
        self._may_make(caller, owner)
        for principal in (owner, *renewers):
            if parse_principal(principal).kind != USER:
                raise InvalidRequest(ErrorCode.INVALID_PRINCIPAL_TYPE, "tokens are for users only")
        if owner != requester:
            caller.rights.need(Operation.CREATE_TOKENS, ResourceType.USER, owner)
        secret = await self.ensure_token_secret()
        now_ms = self._wall_ms()
        max_ms = now_ms + tokens.lifetime_ms(lifetime_ms)
        token = DelegationToken(
            id=secrets.token_urlsafe(ID_BYTES),
            owner=owner,
            requester=requester,
            renewers=tuple(dict.fromkeys(renewers)),
            issued_ms=now_ms,
            expires_ms=min(max_ms, now_ms + tokens.RENEWAL_MS),
            max_ms=max_ms,
        )
        await self._placement.submit(SetDelegationToken(token, is_new=True))
        self._audit.changed(caller.identity, caller.address, "delegation token issued", owner)
        return IssuedToken(token, tokens.delegation_hmac(secret, token.id))

    async def renew_delegation_token(self, caller: Caller, hmac: bytes, period_ms: int) -> int:
        """Let a token live on, never beyond what it was made for."""
        token = self._changeable(caller, hmac)
        now_ms = self._wall_ms()
        if not token.is_valid(now_ms):
            raise InvalidRequest(ErrorCode.TOKEN_EXPIRED, "the token has expired")
        period_ms = tokens.RENEWAL_MS if period_ms < 0 else period_ms
        return await self._set_expiry(caller, token, now_ms + period_ms)

    async def expire_delegation_token(self, caller: Caller, hmac: bytes, period_ms: int) -> int:
        """Let a token end after a while; below 0 at once."""
        token = self._changeable(caller, hmac)
        now_ms = self._wall_ms()
        if period_ms < 0:
            await self._placement.submit(DeleteDelegationTokens((token.id,)))
            self._audit.changed(
                caller.identity, caller.address, "delegation token ended", token.owner
            )
            return now_ms
        if not token.is_valid(now_ms):
            raise InvalidRequest(ErrorCode.TOKEN_EXPIRED, "the token has expired")
        return await self._set_expiry(caller, token, now_ms + period_ms)

    def delegation_tokens(
        self, caller: Caller, owners: Sequence[str] | None
    ) -> Sequence[IssuedToken]:
        """The tokens of these owners that the caller may see, with what their users show."""
        if caller.identity.by_token:
            raise _no_deals()
        secret = self._table.token_secret()
        if secret is None:
            return []
        now_ms = self._wall_ms()
        return [
            IssuedToken(token, tokens.delegation_hmac(secret, token.id))
            for token in self._table.delegation_tokens.values()
            if (owners is None or token.owner in owners)
            and now_ms < token.max_ms
            and self._may_see(caller, token)
        ]

    async def sweep(self, every_s: float = SWEEP_INTERVAL_S) -> None:
        """Drop tokens whose time is over, for as long as the node runs."""
        while True:
            await asyncio.sleep(every_s)
            await self.forget_expired()

    async def forget_expired(self) -> None:
        """Drop tokens whose time is over."""
        now_ms = self._wall_ms()
        table = self._table.delegation_tokens
        over = tuple(t.id for t in table.values() if now_ms >= min(t.max_ms, t.expires_ms))
        if over:
            await self._placement.submit(DeleteDelegationTokens(over))

    def tokens_changed(self) -> None:
        """Look at all tokens again: clients name them by their HMAC."""
        secret = self._table.token_secret()
        known = self._table.delegation_tokens if secret is not None else ()
        self._by_hmac = {tokens.delegation_hmac(secret or b"", each): each for each in known}

    async def _set_expiry(self, caller: Caller, token: DelegationToken, asked_ms: int) -> int:
        changed = replace(token, expires_ms=min(asked_ms, token.max_ms))
        await self._placement.submit(SetDelegationToken(changed, is_new=False))
        self._audit.changed(
            caller.identity, caller.address, "delegation token changed", token.owner
        )
        return changed.expires_ms

    def _changeable(self, caller: Caller, hmac: bytes) -> DelegationToken:
        self._may_make(caller, str(caller.identity.principal))
        token = self._table.delegation_token(self._by_hmac.get(hmac, ""))
        if token is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_TOKEN, "there is no such token")
        if not token.may_be_changed_by(str(caller.identity.principal)):
            raise InvalidRequest(
                ErrorCode.TOKEN_OWNER_MISMATCH, "only its owner and its renewers may change a token"
            )
        return token

    def _may_see(self, caller: Caller, token: DelegationToken) -> bool:
        own = str(caller.identity.principal)
        return (
            token.may_be_changed_by(own)
            or token.requester == own
            or caller.rights.may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id)
            or caller.rights.may(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
        )

    def _may_make(self, caller: Caller, owner: str) -> None:
        identity = caller.identity
        if identity.by_token:
            raise _no_deals()
        if owner == str(ANONYMOUS):
            raise InvalidRequest(
                ErrorCode.TOKEN_REQUEST_REFUSED,
                "a token stands for somebody who has logged in",
                remedy="log in, or name the owner",
            )


def _no_deals() -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.TOKEN_REQUEST_REFUSED, "who came with a token cannot deal in tokens"
    )
