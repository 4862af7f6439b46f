"""Builds security from the configuration: logins, rules, quotas, audit, TLS."""

from pathlib import Path

from mainstem.broker.api.security import Caller
from mainstem.broker.services.security.security_service import SecurityService
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.config.amqp import is_amqp_authentication_required
from mainstem.node.config.listener_spec import ListenerSpec, kafka_listeners
from mainstem.node.config.settings import Config
from mainstem.placement.service import PlacementService
from mainstem.security.audit import Audit
from mainstem.security.audit_storage import AuditFile
from mainstem.security.authentication.lockout import Lockout, LockoutSettings
from mainstem.security.authentication.login_service import (
    BearerVerifier,
    CredentialStore,
    LoginService,
)
from mainstem.security.authentication.passwords import is_right
from mainstem.security.authentication.tls_transport import TlsContexts, TlsSettings
from mainstem.security.authorisation.authoriser import AllRights, Authoriser
from mainstem.security.principals import USER, Identity, Principal

AUDIT_FILE = "audit.jsonl"
ADMIN = "admin"
NODE_CALLER = Caller(Identity(Principal(USER, "node"), method="configuration"), "", AllRights())


def is_authentication_required(config: Config, spec: ListenerSpec) -> bool:
    """Whether every client of this listener has to authenticate."""
    return spec.sasl or (spec.tls and config.tls.client_certificates == "required")


def is_enforced(config: Config) -> bool:
    """Whether access rules are enforced on this node."""
    if config.security.authorise != "auto":
        return config.security.authorise == "on"
    by_kafka = any(is_authentication_required(config, spec) for spec in kafka_listeners(config))
    by_amqp = config.amqp.enabled and is_amqp_authentication_required(config)
    by_mqtt = config.mqtt.enabled and config.mqtt.login
    return (
        by_kafka
        or by_amqp
        or by_mqtt
        or (config.http.enabled and is_http_authentication_required(config))
    )


def is_http_authentication_required(config: Config) -> bool:
    """Whether every HTTP request has to authenticate."""
    certificates = config.http.tls and config.tls.client_certificates == "required"
    return config.http.login or certificates


def build_security(
    config: Config, placement: PlacementService, clock: Clock
) -> tuple[SecurityService, AuditFile]:
    """The security service and its audit file."""
    path = Path(config.security.audit_file or Path(config.node.data_dir) / AUDIT_FILE)
    file = AuditFile(path)
    lockout = Lockout(
        LockoutSettings(
            failures_max=config.security.lock_after_failures, lock_ms=config.security.lock_ms
        ),
        clock,
    )
    bearers = _bearers(config, clock)

    def logins(credentials: CredentialStore, audit: Audit) -> LoginService:
        return LoginService(
            credentials,
            lockout,
            audit,
            clock,
            bearers=bearers,
            mechanisms=tuple(config.security.mechanisms),
        )

    service = SecurityService(
        placement,
        clock,
        Audit(clock, file.write),
        logins,
        Authoriser(
            config.security.super_users,
            open_without_rules=config.security.allow_everyone_if_no_acl_found,
        ),
        enforced=is_enforced(config),
    )
    return service, file


async def prepare_logins(config: Config, security: SecurityService) -> None:
    """Create what logins need: the secret for the salts of unknown users, and an administrator."""
    asks = any(spec.sasl for spec in kafka_listeners(config)) or is_enforced(config)
    if asks or security.users.all():
        await security.delegation_tokens.ensure_secret()
    await _ensure_admin(config, security)


async def _ensure_admin(config: Config, security: SecurityService) -> None:
    """Give the user ``admin`` the configured password and the role ``admin``."""
    file = config.security.admin_password_file
    if file is None:
        return
    password = _password_in(file)
    if not is_right(security.users.all().get(ADMIN), password):
        await security.users.set_password(NODE_CALLER, ADMIN, password)
    if ADMIN not in security.roles.bindings().get(f"{USER}:{ADMIN}", ()):
        await security.roles.bind(NODE_CALLER, f"{USER}:{ADMIN}", ADMIN, bound=True)


def tls_contexts(config: Config) -> TlsContexts | None:
    """The configured certificates, shared by all listeners; None where no listener uses TLS.

    Raises:
        InvalidRequest: the files cannot be used.
    """
    if config.tls.certificate_file is None or config.tls.key_file is None:
        return None
    try:
        return TlsContexts(
            TlsSettings(
                certificate_file=config.tls.certificate_file,
                key_file=config.tls.key_file,
                client_ca_file=config.tls.client_ca_file,
                client_certificates=config.tls.client_certificates,
                minimum=config.tls.minimum,
            )
        )
    except OSError as error:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG, f"the TLS files cannot be read: {error}", subject="tls"
        ) from error


def _password_in(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"the file cannot be read: {error}",
            subject="security.admin_password_file",
        ) from error


def _bearers(config: Config, clock: Clock) -> BearerVerifier | None:
    if config.security.oauth_issuer is None:
        return None
    # Imported only where tokens are checked, because the import is slow.
    from mainstem.security.authentication.bearer_service import IssuerTokenVerifier  # noqa: PLC0415
    from mainstem.security.authentication.jwks_client import JwksKeySource  # noqa: PLC0415
    from mainstem.security.authentication.jwt_verifier import JwtSettings, JwtVerifier  # noqa: PLC0415

    if config.security.oauth_keys is None:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            "the issuer's tokens cannot be verified without its keys",
            subject="security.oauth_keys",
        )
    settings = JwtSettings(
        issuer=config.security.oauth_issuer,
        audiences=tuple(config.security.oauth_audiences),
        user_claim=config.security.oauth_user_claim,
        groups_claim=config.security.oauth_groups_claim,
        algorithms=tuple(config.security.oauth_algorithms),
    )
    return IssuerTokenVerifier(
        JwtVerifier(settings, clock), JwksKeySource(config.security.oauth_keys, clock)
    )
