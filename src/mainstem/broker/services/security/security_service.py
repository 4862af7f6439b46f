"""Security service: the catalogue's facts put in force, and the parts that change them."""

from collections.abc import Callable

from mainstem.broker.api.security import Rights
from mainstem.broker.services.security.access_rules_service import AccessRuleService
from mainstem.broker.services.security.api_tokens_service import ApiTokenService
from mainstem.broker.services.security.changes_service import SecurityChanges
from mainstem.broker.services.security.delegation_tokens_service import DelegationTokenService
from mainstem.broker.services.security.quota_limits_service import QuotaLimitService
from mainstem.broker.services.security.roles_service import RoleService
from mainstem.broker.services.security.users_service import UserService
from mainstem.model.clock import Clock
from mainstem.placement.changes import security_commands as records
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.service import PlacementService
from mainstem.placement.state.security_table import SECURITY_FACTS
from mainstem.security.audit import Audit
from mainstem.security.authentication.login_service import CredentialStore, LoginService
from mainstem.security.authorisation.authoriser import AllRights, Authoriser, GrantedRights
from mainstem.security.principals import Identity
from mainstem.security.quotas import Quotas

_EVERYTHING = AllRights()
MakeLogins = Callable[[CredentialStore, Audit], LoginService]


class SecurityService:
    """The ``Security`` of one node. ``enforced`` is whether rules are enforced on this node."""

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
        self._changes = SecurityChanges(placement, audit)
        self._audit = audit
        self._authoriser = authoriser
        self._enforced = enforced
        self.quotas = Quotas(clock)
        self.logins = make_logins(self._changes.table, audit)
        self.users = UserService(self._changes, self.logins)
        self.rules = AccessRuleService(self._changes, enforced=enforced)
        self.roles = RoleService(self._changes)
        self.api_tokens = ApiTokenService(self._changes, clock)
        self.delegation_tokens = DelegationTokenService(self._changes, clock)
        self.limits = QuotaLimitService(self._changes)
        self._load_rules()
        self.quotas.load(self.limits.all())
        placement.subscribe(self._on_fact)

    def rights(self, identity: Identity, host: str, *, trusted: bool = False) -> Rights:
        """The rights of a login; all rights on a trusted loopback listener."""
        if trusted or not self._enforced:
            return _EVERYTHING
        return GrantedRights(self._authoriser, identity, host, self._audit.refused)

    def _on_fact(self, fact: AnyFact) -> None:
        if type(fact) not in SECURITY_FACTS:
            return
        match fact:
            case records.QuotaSet():
                self.quotas.load(self.limits.all())
            case records.UserSet() | records.UserDeleted():
                self.logins.credentials_changed()
            case (
                records.DelegationTokenSet()
                | records.DelegationTokensDeleted()
                | records.TokenSecretSet()
            ):
                self.delegation_tokens.tokens_changed()
            case records.ApiTokenSet() | records.ApiTokenDeleted():
                pass
            case _:
                self._load_rules()

    def _load_rules(self) -> None:
        table = self._changes.table
        self._authoriser.load(table.rules, table.roles, table.bindings)
