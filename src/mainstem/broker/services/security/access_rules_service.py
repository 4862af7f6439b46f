"""Access rule service: Kafka's ACLs."""

from collections.abc import Sequence

from mainstem.broker.api.security import AclFilter, AclRule, Caller
from mainstem.broker.services.security.changes_service import SecurityChanges
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement.changes.security_commands import CreateAcls, DeleteAcls


class AccessRuleService:
    """The ``AccessRules`` of one node. ``enforced`` is whether rules are enforced on this node."""

    def __init__(self, changes: SecurityChanges, *, enforced: bool) -> None:
        self._changes = changes
        self._enforced = enforced

    def matching(self, wanted: AclFilter) -> Sequence[AclRule]:
        """The rules that a filter finds."""
        return [rule for rule in self._changes.table.rules if wanted.matches(rule)]

    async def create(self, caller: Caller, rules: Sequence[AclRule]) -> None:
        """Add rules."""
        self._need_enforced()
        await self._changes.submit(CreateAcls(tuple(rules)))
        for rule in rules:
            self._changes.record(caller, "rule created", _shown(rule))

    async def delete(
        self, caller: Caller, filters: Sequence[AclFilter]
    ) -> Sequence[Sequence[AclRule]]:
        """Remove rules; what each filter found."""
        self._need_enforced()
        found = await self._changes.submit(DeleteAcls(tuple(filters)))
        for rule in dict.fromkeys(rule for rules in found for rule in rules):
            self._changes.record(caller, "rule deleted", _shown(rule))
        return found

    def _need_enforced(self) -> None:
        if not self._enforced:
            raise InvalidRequest(
                ErrorCode.SECURITY_DISABLED,
                "no rules are enforced on this node",
                remedy="set security.authorise to on, or add a listener that requires a login",
            )


def _shown(rule: AclRule) -> str:
    return (
        f"{rule.permission.name} {rule.principal} {rule.operation.name} "
        f"{rule.resource_type.name} {rule.pattern_type.name} {rule.name} from {rule.host}"
    )
