"""API token service. Altering tokens of others needs the right to alter the cluster."""

import secrets
from collections.abc import Sequence
from typing import Final

from mainstem.broker.api.security import ApiToken, Caller
from mainstem.broker.services.security.changes_service import SecurityChanges
from mainstem.broker.services.security.token_requests import need_own_login
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement.changes.security_commands import CreateApiToken, DeleteApiToken
from mainstem.security.authentication import tokens
from mainstem.security.authorisation.acl import CLUSTER_NAME, Operation, ResourceType

LIFETIME_MS_MAX: Final = 10 * 365 * tokens.DAY_MS


class ApiTokenService:
    """The ``ApiTokens`` of one node."""

    def __init__(self, changes: SecurityChanges, clock: Clock) -> None:
        self._changes = changes
        self._wall_ms = clock.wall_ms

    def visible_to(self, caller: Caller) -> Sequence[ApiToken]:
        """All tokens for callers that may describe the cluster, otherwise the caller's own."""
        everything = caller.rights.may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
        own = str(caller.identity.principal)
        return [t for t in self._changes.table.api_tokens.values() if everything or t.owner == own]

    async def create(
        self,
        caller: Caller,
        *,
        name: str,
        owner: str | None = None,
        lifetime_ms: int | None = None,
        roles: tuple[str, ...] | None = None,
    ) -> tuple[ApiToken, str]:
        """A new token and its text, which is shown only once."""
        own = str(caller.identity.principal)
        owner = owner or own
        if owner != own:
            caller.rights.need(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        need_own_login(caller, owner)
        if lifetime_ms is not None and not 0 < lifetime_ms <= LIFETIME_MS_MAX:
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, f"a lifetime of {lifetime_ms} ms")
        token_id, text, digest = tokens.make_api_token(
            secrets.token_bytes(tokens.ID_BYTES + tokens.SECRET_BYTES)
        )
        now_ms = self._wall_ms()
        expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        token = ApiToken(token_id, owner, digest, name, now_ms, expires_ms, roles)
        await self._changes.submit(CreateApiToken(token))
        self._changes.record(caller, "token created", token_id)
        return token, text

    async def delete(self, caller: Caller, token_id: str) -> None:
        """Revoke a token. Without the right to it, the token is reported as unknown."""
        token = self._changes.table.api_token(token_id)
        own = token is not None and token.owner == str(caller.identity.principal)
        if not own or caller.identity.by_token:
            caller.rights.need(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
        await self._changes.submit(DeleteApiToken(token_id))
        self._changes.record(caller, "token deleted", token_id)
