"""Quota service: the limits of each entity."""

from collections.abc import Iterable, Mapping

from mainstem.broker.api.security import Caller, Entity, QuotaEntry
from mainstem.broker.services.security.changes_service import SecurityChanges
from mainstem.placement.changes.security_commands import AlterQuota


class QuotaLimitService:
    """The ``QuotaLimits`` of one node."""

    def __init__(self, changes: SecurityChanges) -> None:
        self._changes = changes

    def all(self) -> Iterable[QuotaEntry]:
        """Every entity with limits."""
        return self._changes.table.quotas()

    async def alter(
        self,
        caller: Caller,
        entity: Entity,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change limits of an entity; None removes one."""
        command = AlterQuota(entity, dict(changes))
        if validate_only:
            self._changes.check(command)
            return
        await self._changes.submit(command)
        self._changes.record(caller, "quota changed", str(entity))
