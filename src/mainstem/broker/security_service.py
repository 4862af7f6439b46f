"""Security behind the counter: the catalogue's facts put in force, and changed on request."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from mainstem.broker.security_api import (
    AclFilter,
    AclRule,
    Caller,
    Credentials,
    Entity,
    QuotaEntry,
    Rights,
    RoleRule,
    ScramCredential,
)
from mainstem.broker.tokens_service import TokenDesk
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.placement import security_records as records
from mainstem.placement.records import AnyFact
from mainstem.placement.security_table import SECURITY_FACTS, SecurityTable
from mainstem.placement.service import PlacementService
from mainstem.security.audit import Audit
from mainstem.security.authoriser import AllRights, Authoriser, GrantedRights
from mainstem.security.logins_service import CredentialBook, Logins
from mainstem.security.principals import Identity
from mainstem.security.quotas import Quotas
from mainstem.security.roles import BUILT_IN

_EVERYTHING = AllRights()
MakeLogins = Callable[[CredentialBook, Audit], Logins]


class SecurityService(TokenDesk):
    """See the module's text. ``enforced`` is whether rules count at all on this node."""

    def __init__(
        self,
        placement: PlacementService,
        clock: Clock,
        audit: Audit,
        make_logins: MakeLogins,
        authoriser: Authoriser,
        *,
        enforced: bool = False,
    ) -> None:
        super().__init__(placement, clock, audit)
        self.quotas = Quotas(clock)
        self.logins = make_logins(self._table, audit)
        self._authoriser = authoriser
        self._enforced = enforced
        self._load_rules()
        self.quotas.load(self._table.quotas())
        placement.subscribe(self._on_fact)

    def rights(self, identity: Identity, host: str, *, trusted: bool = False) -> Rights:
        """What a login may do; all of it on a listener that belongs to the operator."""
        if trusted or not self._enforced:
            return _EVERYTHING
        return GrantedRights(self._authoriser, identity, host, self._audit.refused)

    # Users

    def users(self) -> Mapping[str, Credentials]:
        """Every user with a password."""
        return self._table.users

    async def set_password(self, caller: Caller, user: str, password: str) -> None:
        """Give a user a password for every mechanism."""
        credentials = await self.logins.make_credentials(password)
        await self._placement.submit(records.SetCredentials(user, credentials))
        self._note(caller, "password set", user)

    async def alter_scram(
        self,
        caller: Caller,
        user: str,
        upserts: Sequence[ScramCredential],
        deletions: Sequence[str],
    ) -> None:
        """Replace and remove SCRAM keys of a user."""
        await self._placement.submit(records.AlterScram(user, tuple(upserts), tuple(deletions)))
        self._note(caller, "credential changed", user)

    async def delete_user(self, caller: Caller, user: str) -> None:
        """Forget a user's password, roles and tokens."""
        await self._placement.submit(records.DeleteUser(user))
        self._note(caller, "user deleted", user)

    # Rules and roles

    def rules(self, wanted: AclFilter) -> Sequence[AclRule]:
        """The rules that a filter finds."""
        return [rule for rule in self._table.rules if wanted.matches(rule)]

    async def create_acls(self, caller: Caller, rules: Sequence[AclRule]) -> None:
        """Add rules."""
        self._need_enforced()
        await self._placement.submit(records.CreateAcls(tuple(rules)))
        for rule in rules:
            self._note(caller, "rule created", _shown(rule))

    async def delete_acls(
        self, caller: Caller, filters: Sequence[AclFilter]
    ) -> Sequence[Sequence[AclRule]]:
        """Remove rules; what each filter found."""
        self._need_enforced()
        found = await self._placement.submit(records.DeleteAcls(tuple(filters)))
        for rule in dict.fromkeys(rule for rules in found for rule in rules):
            self._note(caller, "rule deleted", _shown(rule))
        return found

    def roles(self) -> Mapping[str, tuple[RoleRule, ...]]:
        """Every role, built in or made."""
        return {**BUILT_IN, **self._table.roles}

    def bindings(self) -> Mapping[str, tuple[str, ...]]:
        """Which roles each principal has."""
        return self._table.bindings

    async def set_role(self, caller: Caller, name: str, rules: Sequence[RoleRule]) -> None:
        """Make a role, or replace its rules."""
        await self._placement.submit(records.SetRole(name, tuple(rules)))
        self._note(caller, "role set", name)

    async def delete_role(self, caller: Caller, name: str) -> None:
        """Forget a role."""
        await self._placement.submit(records.DeleteRole(name))
        self._note(caller, "role deleted", name)

    async def bind_role(self, caller: Caller, principal: str, role: str, *, bound: bool) -> None:
        """Give a role to a principal, or take it."""
        kind = records.BindRole if bound else records.UnbindRole
        await self._placement.submit(kind(principal, role))
        self._note(caller, "role given" if bound else "role taken", f"{role} {principal}")

    # Quotas

    def limits(self) -> Iterable[QuotaEntry]:
        """Every entity with limits."""
        return self._table.quotas()

    async def alter_quota(
        self,
        caller: Caller,
        entity: Entity,
        changes: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change limits of an entity; None removes one."""
        command = records.AlterQuota(entity, dict(changes))
        if validate_only:
            self._placement.check(command)
            return
        await self._placement.submit(command)
        self._note(caller, "quota changed", str(entity))

    def _need_enforced(self) -> None:
        if not self._enforced:
            raise InvalidRequest(
                ErrorCode.SECURITY_DISABLED,
                "no rules are enforced on this node",
                remedy="set security.authorise to on, or give it a listener that asks for a login",
            )

    def _on_fact(self, fact: AnyFact) -> None:
        if type(fact) not in SECURITY_FACTS:
            return
        match fact:
            case records.QuotaSet():
                self.quotas.load(self._table.quotas())
            case records.UserSet() | records.UserDeleted():
                self.logins.credentials_changed()
            case (
                records.DelegationTokenSet()
                | records.DelegationTokensDeleted()
                | records.TokenSecretSet()
            ):
                self.tokens_changed()
            case records.ApiTokenSet() | records.ApiTokenDeleted():
                pass
            case _:
                self._load_rules()

    def _load_rules(self) -> None:
        table: SecurityTable = self._table
        self._authoriser.load(table.rules, table.roles, table.bindings)

    def _note(self, caller: Caller, what: str, subject: str) -> None:
        self._audit.changed(caller.identity, caller.address, what, subject)


def _shown(rule: AclRule) -> str:
    return (
        f"{rule.permission.name} {rule.principal} {rule.operation.name} "
        f"{rule.resource_type.name} {rule.pattern_type.name} {rule.name} from {rule.host}"
    )
