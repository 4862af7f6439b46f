"""Login settings of flags, files and variables, and their precedence. Pure.

Each source gives a part of the settings. A setting of a source overrides that of a source of lower
precedence, with one extra rule: a secret belongs to the user it was given with, so a source that
names another user (or has a token) also drops the secret of sources of lower precedence.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import DEFAULT_ADDRESS, ConnectionOptions, SaslCredentials, Tls

DEFAULT_MECHANISM = "SCRAM-SHA-512"
BEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", BEARER)


class LoginSettings(NamedTuple):
    """The settings of one source; None: not set by it."""

    bootstrap: str | None = None
    http: str | None = None
    user: str | None = None
    password: str | None = None
    password_file: str | None = None
    mechanism: str | None = None
    token: str | None = None
    token_file: str | None = None
    by_token: bool | None = None
    tls: bool | None = None
    ca_file: str | None = None
    ca_pem: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    chain_pem: str | None = None
    key_password: str | None = None
    check_name: bool | None = None
    verify: bool | None = None

    def __repr__(self) -> str:
        return f"LoginSettings(user={self.user!r})"

    @property
    def brings_token(self) -> bool:
        """Whether the source has a token."""
        return self.token is not None or self.token_file is not None

    @property
    def brings_password(self) -> bool:
        """Whether the source has a password."""
        return self.password is not None or self.password_file is not None


_USER = ("user", "password", "password_file", "mechanism", "by_token")
_TOKEN = ("token", "token_file", "mechanism")
_AUTHORITY = ("ca_file", "ca_pem")
_CERTIFICATE = ("cert_file", "key_file", "chain_pem", "key_password")


def merged(sources: Iterable[LoginSettings]) -> LoginSettings:
    """Merges all sources, in order of precedence."""
    whole = LoginSettings()
    for source in sources:
        whole = _over(whole, source)
    return whole


def _over(strong: LoginSettings, weak: LoginSettings) -> LoginSettings:
    if strong.brings_token:
        weak = _without(weak, (*_USER, *_TOKEN))
    elif strong.user is not None:
        weak = _without(weak, _TOKEN if weak.brings_token else ())
        if weak.user not in (None, strong.user):
            weak = _without(weak, _USER)
    if strong.brings_password:
        weak = _without(weak, ("password", "password_file"))
    if strong.ca_file or strong.ca_pem:
        weak = _without(weak, _AUTHORITY)
    if strong.cert_file or strong.chain_pem:
        weak = _without(weak, _CERTIFICATE)
    given = {name: value for name, value in strong._asdict().items() if value is not None}
    return weak._replace(**given)


def _without(login_settings: LoginSettings, names: Iterable[str]) -> LoginSettings:
    return login_settings._replace(**dict.fromkeys(names))


def access_from(login_settings: LoginSettings, *, secret: "Secret") -> ConnectionOptions:
    """The access that the settings give; ``secret`` reads passwords and tokens kept outside.

    Raises:
        UsageFailure: they contradict each other.
    """
    return ConnectionOptions(
        login_settings.bootstrap or DEFAULT_ADDRESS,
        given=login_settings.bootstrap is not None,
        http=login_settings.http,
        login=_login(login_settings, secret),
        tls=_tls(login_settings),
    )


class Secret(Protocol):
    """Reads secrets that the settings refer to."""

    def of_file(self, path: str) -> str:
        """The text in a file."""
        ...

    def of_user(self, user: str) -> str:
        """The password of a user, prompted for."""
        ...


def _login(login_settings: LoginSettings, secret: Secret) -> SaslCredentials | None:
    mechanism = _mechanism(login_settings)
    if login_settings.brings_token:
        if mechanism != BEARER:
            raise UsageFailure(f"{mechanism} takes no token", remedy=f"--mechanism {BEARER}")
        token = (
            login_settings.token
            if login_settings.token is not None
            else secret.of_file(str(login_settings.token_file))
        )
        file = login_settings.token_file if login_settings.token is None else None
        return SaslCredentials(BEARER, token=token, token_file=file)
    if login_settings.user is None:
        if (
            login_settings.password_file is not None
            or login_settings.by_token
            or login_settings.mechanism is not None
        ):
            raise UsageFailure("no user is given", remedy="--user NAME")
        return None
    if mechanism == BEARER:
        raise UsageFailure(f"{BEARER} takes a token", remedy="--token-file FILE")
    password = login_settings.password
    if password is None:
        file = login_settings.password_file
        password = secret.of_user(login_settings.user) if file is None else secret.of_file(file)
    return SaslCredentials(
        mechanism, login_settings.user, password, by_token=bool(login_settings.by_token)
    )


def _mechanism(login_settings: LoginSettings) -> str:
    usual = BEARER if login_settings.brings_token else DEFAULT_MECHANISM
    mechanism = (login_settings.mechanism or usual).upper()
    if mechanism not in MECHANISMS:
        raise UsageFailure(
            f"{login_settings.mechanism!r} is not a mechanism",
            remedy=f"use {', '.join(MECHANISMS)}",
        )
    return mechanism


def _tls(login_settings: LoginSettings) -> Tls | None:
    named = any(
        (
            login_settings.ca_file,
            login_settings.ca_pem,
            login_settings.cert_file,
            login_settings.chain_pem,
        )
    )
    if login_settings.key_file is not None and login_settings.cert_file is None:
        raise UsageFailure("a key without its certificate", subject=login_settings.key_file,
                           remedy="--cert-file FILE")  # fmt: skip
    if not (named if login_settings.tls is None else login_settings.tls):
        return None
    return Tls(
        login_settings.ca_file,
        login_settings.ca_pem,
        login_settings.cert_file,
        login_settings.key_file,
        login_settings.chain_pem,
        login_settings.key_password,
        check_name=login_settings.check_name is not False,
        verify=login_settings.verify is not False,
    )
