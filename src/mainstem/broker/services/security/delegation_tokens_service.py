"""Delegation token service: Kafka's tokens, whose HMAC authenticates their users."""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from mainstem.broker.api.security import Caller, DelegationToken, IssuedToken
from mainstem.broker.services.security.changes_service import SecurityChanges
from mainstem.broker.services.security.token_requests import need_own_login, token_refused
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement.changes.security_commands import (
    DeleteDelegationTokens,
    SetDelegationToken,
    SetTokenSecret,
)
from mainstem.security.authentication import tokens
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.security.principals import USER, parse_principal

SECRET_BYTES: Final = 64
SWEEP_INTERVAL_S: Final = 600.0
ID_BYTES: Final = 16


class DelegationTokenService:
    """The ``DelegationTokens`` of one node."""

    def __init__(self, changes: SecurityChanges, clock: Clock) -> None:
        self._changes = changes
        self._wall_ms = clock.wall_ms
        self._by_hmac: dict[bytes, str] = {}
        self.tokens_changed()

    async def ensure_secret(self) -> bytes:
        """The catalogue's secret for tokens, created if it does not exist."""
        known = self._changes.table.token_secret()
        if known is not None:
            return known
        return await self._changes.submit(SetTokenSecret(secrets.token_bytes(SECRET_BYTES)))

    async def issue(
        self, caller: Caller, *, owner: str | None, renewers: Sequence[str], lifetime_ms: int
    ) -> IssuedToken:
        """A new token; for another owner only with the right to do so."""
        requester = str(caller.identity.principal)
        owner = owner or requester
        need_own_login(caller, owner)
        for principal in (owner, *renewers):
            if parse_principal(principal).kind != USER:
                raise InvalidRequest(ErrorCode.INVALID_PRINCIPAL_TYPE, "only users can own tokens")
        if owner != requester:
            caller.rights.need(Operation.CREATE_TOKENS, ResourceType.USER, owner)
        secret = await self.ensure_secret()
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
        await self._changes.submit(SetDelegationToken(token, is_new=True))
        self._changes.record(caller, "delegation token issued", owner)
        return IssuedToken(token, tokens.delegation_hmac(secret, token.id))

    async def renew(self, caller: Caller, hmac: bytes, period_ms: int) -> int:
        """Renew a token, up to its maximum lifetime."""
        token = self._changeable(caller, hmac)
        now_ms = self._wall_ms()
        if not token.is_valid(now_ms):
            raise InvalidRequest(ErrorCode.TOKEN_EXPIRED, "the token has expired")
        period_ms = tokens.RENEWAL_MS if period_ms < 0 else period_ms
        return await self._set_expiry(caller, token, now_ms + period_ms)

    async def expire(self, caller: Caller, hmac: bytes, period_ms: int) -> int:
        """Expire a token after a time; below 0 at once."""
        token = self._changeable(caller, hmac)
        now_ms = self._wall_ms()
        if period_ms < 0:
            await self._changes.submit(DeleteDelegationTokens((token.id,)))
            self._changes.record(caller, "delegation token ended", token.owner)
            return now_ms
        if not token.is_valid(now_ms):
            raise InvalidRequest(ErrorCode.TOKEN_EXPIRED, "the token has expired")
        return await self._set_expiry(caller, token, now_ms + period_ms)

    def visible_to(self, caller: Caller, owners: Sequence[str] | None) -> Sequence[IssuedToken]:
        """The tokens of these owners that the caller may see, with their HMACs."""
        if caller.identity.by_token:
            raise token_refused()
        secret = self._changes.table.token_secret()
        if secret is None:
            return []
        now_ms = self._wall_ms()
        return [
            IssuedToken(token, tokens.delegation_hmac(secret, token.id))
            for token in self._changes.table.delegation_tokens.values()
            if (owners is None or token.owner in owners)
            and now_ms < token.max_ms
            and self._may_see(caller, token)
        ]

    async def sweep(self, every_s: float = SWEEP_INTERVAL_S) -> None:
        """Drop expired tokens, for as long as the node runs."""
        while True:
            await asyncio.sleep(every_s)
            await self.forget_expired()

    async def forget_expired(self) -> None:
        """Drop expired tokens."""
        now_ms = self._wall_ms()
        table = self._changes.table.delegation_tokens
        over = tuple(t.id for t in table.values() if now_ms >= min(t.max_ms, t.expires_ms))
        if over:
            await self._changes.submit(DeleteDelegationTokens(over))

    def tokens_changed(self) -> None:
        """Rebuild the index of tokens by HMAC, by which clients name them."""
        secret = self._changes.table.token_secret()
        known = self._changes.table.delegation_tokens if secret is not None else ()
        self._by_hmac = {tokens.delegation_hmac(secret or b"", each): each for each in known}

    async def _set_expiry(self, caller: Caller, token: DelegationToken, asked_ms: int) -> int:
        changed = replace(token, expires_ms=min(asked_ms, token.max_ms))
        await self._changes.submit(SetDelegationToken(changed, is_new=False))
        self._changes.record(caller, "delegation token changed", token.owner)
        return changed.expires_ms

    def _changeable(self, caller: Caller, hmac: bytes) -> DelegationToken:
        need_own_login(caller, str(caller.identity.principal))
        token = self._changes.table.delegation_token(self._by_hmac.get(hmac, ""))
        if token is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_TOKEN, "unknown token")
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
