"""What flags, files and variables say about a login, and which of them wins. Pure.

Each source gives a part of the whole. A stronger source covers a weaker one word by word, with one
rule on top: a secret belongs to the user it was given with, so whoever names another user (or
brings a token) leaves the weaker source's secret behind.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mainstem.cli.access import DEFAULT_ADDRESS, Access, Login, Tls
from mainstem.cli.failure import UsageFailure

DEFAULT_MECHANISM = "SCRAM-SHA-512"
BEARER = "OAUTHBEARER"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", BEARER)


class Wishes(NamedTuple):
    """One source's part; None: it says nothing about it."""

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
        return f"Wishes(user={self.user!r})"

    @property
    def brings_token(self) -> bool:
        """Whether it is a token that says who asks."""
        return self.token is not None or self.token_file is not None

    @property
    def brings_password(self) -> bool:
        """Whether a password is known."""
        return self.password is not None or self.password_file is not None


_USER = ("user", "password", "password_file", "mechanism", "by_token")
_TOKEN = ("token", "token_file", "mechanism")
_AUTHORITY = ("ca_file", "ca_pem")
_CERTIFICATE = ("cert_file", "key_file", "chain_pem", "key_password")


def merged(sources: Iterable[Wishes]) -> Wishes:
    """All sources in one, the strongest first."""
    whole = Wishes()
    for source in sources:
        whole = _over(whole, source)
    return whole


def _over(strong: Wishes, weak: Wishes) -> Wishes:
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
    said = {name: value for name, value in strong._asdict().items() if value is not None}
    return weak._replace(**said)


def _without(wishes: Wishes, names: Iterable[str]) -> Wishes:
    return wishes._replace(**dict.fromkeys(names))


def as_access(wishes: Wishes, *, secret: "Secret") -> Access:
    """What the wishes come to; ``secret`` is asked for passwords and tokens that are elsewhere.

    Raises:
        UsageFailure: they do not go together.
    """
    return Access(
        wishes.bootstrap or DEFAULT_ADDRESS,
        given=wishes.bootstrap is not None,
        http=wishes.http,
        login=_login(wishes, secret),
        tls=_tls(wishes),
    )


class Secret(Protocol):
    """Where secrets come from that the wishes only point to."""

    def of_file(self, path: str) -> str:
        """The text in a file."""
        ...

    def of_user(self, user: str) -> str:
        """What somebody answers who is asked for his password."""
        ...


def _login(wishes: Wishes, secret: Secret) -> Login | None:
    mechanism = _mechanism(wishes)
    if wishes.brings_token:
        if mechanism != BEARER:
            raise UsageFailure(f"{mechanism} takes no token", remedy=f"--mechanism {BEARER}")
        token = wishes.token if wishes.token is not None else secret.of_file(str(wishes.token_file))
        file = wishes.token_file if wishes.token is None else None
        return Login(BEARER, token=token, token_file=file)
    if wishes.user is None:
        if wishes.password_file is not None or wishes.by_token or wishes.mechanism is not None:
            raise UsageFailure("nobody is named who logs in", remedy="--user NAME")
        return None
    if mechanism == BEARER:
        raise UsageFailure(f"{BEARER} takes a token", remedy="--token-file FILE")
    password = wishes.password
    if password is None:
        file = wishes.password_file
        password = secret.of_user(wishes.user) if file is None else secret.of_file(file)
    return Login(mechanism, wishes.user, password, by_token=bool(wishes.by_token))


def _mechanism(wishes: Wishes) -> str:
    usual = BEARER if wishes.brings_token else DEFAULT_MECHANISM
    mechanism = (wishes.mechanism or usual).upper()
    if mechanism not in MECHANISMS:
        raise UsageFailure(
            f"{wishes.mechanism!r} is not a mechanism", remedy=f"use {', '.join(MECHANISMS)}"
        )
    return mechanism


def _tls(wishes: Wishes) -> Tls | None:
    named = any((wishes.ca_file, wishes.ca_pem, wishes.cert_file, wishes.chain_pem))
    if wishes.key_file is not None and wishes.cert_file is None:
        raise UsageFailure("a key without its certificate", subject=wishes.key_file,
                           remedy="--cert-file FILE")  # fmt: skip
    if not (named if wishes.tls is None else wishes.tls):
        return None
    return Tls(
        wishes.ca_file,
        wishes.ca_pem,
        wishes.cert_file,
        wishes.key_file,
        wishes.chain_pem,
        wishes.key_password,
        check_name=wishes.check_name is not False,
        verify=wishes.verify is not False,
    )
