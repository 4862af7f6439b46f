"""Role service: named sets of rules, and who has them."""

from collections.abc import Mapping, Sequence

from mainstem.broker.api.security import Caller, RoleRule
from mainstem.broker.services.security.changes_service import SecurityChanges
from mainstem.placement.changes.security_commands import BindRole, DeleteRole, SetRole, UnbindRole
from mainstem.security.authorisation.roles import BUILT_IN


class RoleService:
    """The ``Roles`` of one node."""

    def __init__(self, changes: SecurityChanges) -> None:
        self._changes = changes

    def all(self) -> Mapping[str, tuple[RoleRule, ...]]:
        """Every role, built in or created."""
        return {**BUILT_IN, **self._changes.table.roles}

    def bindings(self) -> Mapping[str, tuple[str, ...]]:
        """Which roles each principal has."""
        return self._changes.table.bindings

    async def set(self, caller: Caller, name: str, rules: Sequence[RoleRule]) -> None:
        """Create a role, or replace its rules."""
        await self._changes.submit(SetRole(name, tuple(rules)))
        self._changes.record(caller, "role set", name)

    async def delete(self, caller: Caller, name: str) -> None:
        """Delete a role."""
        await self._changes.submit(DeleteRole(name))
        self._changes.record(caller, "role deleted", name)

    async def bind(self, caller: Caller, principal: str, role: str, *, bound: bool) -> None:
        """Grant a role to a principal, or revoke it."""
        kind = BindRole if bound else UnbindRole
        await self._changes.submit(kind(principal, role))
        self._changes.record(caller, "role given" if bound else "role taken", f"{role} {principal}")
