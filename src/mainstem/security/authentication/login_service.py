"""Authentication: every way to log in, with lock-out and audit in one place.

    exchange = logins.begin("SCRAM-SHA-256", address)      SASL, message by message
    identity = await logins.password("alice", secret, address)
    identity = await logins.bearer(token, address)         JSON web tokens and API tokens

A failure raises ``LoginRefused``; the client learns only that the login failed.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from msgspec.structs import replace

from mainstem.model import scram
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.scram import ScramCredential
from mainstem.security.audit import Audit
from mainstem.security.authentication import passwords, tokens
from mainstem.security.authentication.lockout import Lockout
from mainstem.security.authentication.passwords import Credentials, PasswordCache
from mainstem.security.authentication.sasl import (
    CheckBearer,
    CheckPassword,
    LoginProven,
    LoginRefused,
    Mechanism,
    OauthBearer,
    Plain,
    SendChallenge,
    refuse,
)
from mainstem.security.authentication.scram import CredentialLookup, ScramServer
from mainstem.security.authentication.scram_decoys import ScramDecoys
from mainstem.security.authentication.tokens import ApiToken, DelegationToken
from mainstem.security.principals import USER, Identity, Principal, parse_principal

PASSWORD_THREADS: Final = 2
CHECKS_WAITING_MAX: Final = 200
NONCE_BYTES: Final = 18
MESSAGES_MAX: Final = 4
FAILURE_DELAY_S: Final = 0.1
PLAIN: Final = "PLAIN"
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER")


class CredentialStore(Protocol):
    """Look-up of stored credentials."""

    @property
    def users(self) -> Mapping[str, Credentials]:
        """Every user with a password."""
        ...

    def credentials(self, user: str) -> Credentials | None:
        """The stored credentials of a user."""
        ...

    def api_token(self, token_id: str) -> ApiToken | None:
        """An API token."""
        ...

    def delegation_token(self, token_id: str) -> DelegationToken | None:
        """A delegation token."""
        ...

    def token_secret(self) -> bytes | None:
        """The secret of delegation tokens."""
        ...


class BearerVerifier(Protocol):
    """Verifies tokens of an external issuer (``bearer_service``)."""

    async def identity(self, token: str) -> Identity:
        """The identity of a token; raises ``LoginRefused``."""
        ...


class LoginService:
    """Authenticates clients by every mechanism, with lock-out and audit."""

    def __init__(
        self,
        credentials: CredentialStore,
        lockout: Lockout,
        audit: Audit,
        clock: Clock,
        *,
        bearers: BearerVerifier | None = None,
        mechanisms: Sequence[str] = MECHANISMS,
    ) -> None:
        self._failure_delay_s = FAILURE_DELAY_S
        self._credentials = credentials
        self._lockout = lockout
        self._audit = audit
        self._wall_ms = clock.wall_ms
        self._bearers = bearers
        self.mechanisms = tuple(mechanisms)
        self._right = PasswordCache(clock, secrets.token_bytes(32))
        self._decoys = ScramDecoys(
            credentials.token_secret, lambda: credentials.users, secrets.token_bytes(32)
        )
        self._keys = CredentialLookup(self._user_keys, self._token_keys, self._decoys)
        self._threads = ThreadPoolExecutor(PASSWORD_THREADS, thread_name_prefix="passwords")
        self._checking = 0

    def begin(self, mechanism: str, address: str) -> "SaslExchange":
        """A SASL exchange.

        Raises:
            InvalidRequest: the mechanism is not enabled.
        """
        if mechanism not in self.mechanisms:
            raise InvalidRequest(
                ErrorCode.UNSUPPORTED_MECHANISM,
                f"mechanism {mechanism[:40]!r} is not enabled",
                remedy=f"use {', '.join(self.mechanisms)}",
            )
        machine: Mechanism
        if mechanism == "PLAIN":
            machine = Plain()
        elif mechanism == "OAUTHBEARER":
            machine = OauthBearer()
        else:
            nonce = secrets.token_urlsafe(NONCE_BYTES)
            machine = ScramServer(mechanism, self._keys, nonce)
        return SaslExchange(self, machine, mechanism, address)

    async def password(
        self, user: str, password: str, address: str, *, noted: bool = False
    ) -> Identity:
        """Check name and password, as in HTTP basic authentication.

        ``noted``: the same login succeeded before on this connection and is in the audit log.
        """
        work = self._by_password(user, password, address)
        return await self._watched(PLAIN, address, work, noted=noted)

    async def bearer(self, token: str, address: str, *, noted: bool = False) -> Identity:
        """Check a token; ``noted`` as with passwords."""
        return await self._watched("bearer", address, self._by_bearer(token), noted=noted)

    def credentials_changed(self) -> None:
        """Drop cached results of older credentials."""
        self._decoys.credentials_changed()
        self._right.forget_all()

    async def make_credentials(self, password: str) -> Credentials:
        """The credentials to store for a new password."""
        salts = [secrets.token_bytes(scram.SALT_BYTES) for _ in scram.ALGORITHMS]
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, passwords.make_credentials, password, salts
        )

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def succeeded(self, identity: Identity, address: str) -> Identity:
        """Record a successful login."""
        self._lockout.succeeded(identity.principal.name, address)
        self._audit.logged_in(identity, address)
        return identity

    async def failed(self, refusal: LoginRefused, method: str, address: str) -> None:
        """Record a failed login, and delay the answer to slow down guessing."""
        if not refusal.unseen:
            locked_ms = self._lockout.failed(refusal.user, address)
            locked_text = f", locked for {locked_ms} ms" if locked_ms else ""
            self._audit.login_refused(refusal.user, method, address, refusal.reason + locked_text)
        await asyncio.sleep(self._failure_delay_s)

    def check_lock(self, user: str, address: str) -> None:
        """Refuse a locked pair of user and address without checking the credentials."""
        if self._lockout.locked_ms(user, address):
            raise LoginRefused("locked after repeated failures", user=user, unseen=True)

    def by_scram(self, proven: LoginProven, mechanism: str) -> Identity:
        """The identity of a finished SCRAM exchange: a user, or the owner of a token."""
        if not proven.by_token:
            return Identity(Principal(USER, proven.user), method=mechanism)
        token = self._credentials.delegation_token(proven.user)
        if token is None or not token.is_valid(self._wall_ms()):
            refuse("the delegation token no longer exists", user=proven.user)
        return Identity(
            parse_principal(token.owner),
            method=mechanism,
            until_ms=min(token.expires_ms, token.max_ms),
            by_token=True,
        )

    async def by_password(self, asked: CheckPassword, address: str) -> Identity:
        """The identity of a name and password."""
        return await self._by_password(asked.user, asked.password, address)

    async def by_bearer(self, asked: CheckBearer) -> Identity:
        """The identity of a token; the authorization id must be the same user."""
        identity = await self._by_bearer(asked.token)
        if asked.authzid not in ("", identity.principal.name):
            refuse("the authorization id is another user", user=identity.principal.name)
        return identity

    async def _watched(
        self, method: str, address: str, work: Awaitable[Identity], *, noted: bool
    ) -> Identity:
        try:
            identity = await work
            return identity if noted else self.succeeded(identity, address)
        except LoginRefused as refusal:
            await self.failed(refusal, method, address)
            raise

    async def _by_password(self, user: str, password: str, address: str) -> Identity:
        self.check_lock(user, address)
        if not self._right.knows(user, password):
            credentials = self._credentials.credentials(user)
            if not await self._is_right(credentials, password):
                refuse("wrong password" if credentials else "no such user", user=user)
            self.check_lock(
                user, address
            )  # other logins may have failed while this one was checked
            if self._credentials.credentials(user) is not credentials:
                refuse("the password was changed meanwhile", user=user)
            self._right.remember(user, password)
        return Identity(Principal(USER, user), method=PLAIN)

    async def _is_right(self, credentials: Credentials | None, password: str) -> bool:
        if self._checking >= CHECKS_WAITING_MAX:
            raise Unavailable(ErrorCode.OVERLOADED, "too many passwords wait to be checked")
        self._checking += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, passwords.is_right, credentials, password
            )
        finally:
            self._checking -= 1

    async def _by_bearer(self, token: str) -> Identity:
        ours = tokens.split_api_token(token)
        if ours is not None:
            return self._by_api_token(*ours)
        if self._bearers is None:
            refuse("no issuer of tokens is configured")
        return await self._bearers.identity(token)

    def _by_api_token(self, token_id: str, secret: str) -> Identity:
        token = self._credentials.api_token(token_id)
        if token is None or not tokens.is_right(token, secret, self._wall_ms()):
            refuse("an unknown or expired token", user=token.owner if token else "")
        return Identity(
            parse_principal(token.owner),
            method="token",
            until_ms=token.expires_ms,
            by_token=True,
            only_roles=token.roles,
        )

    def _user_keys(self, user: str, mechanism: str) -> ScramCredential | None:
        credentials = self._credentials.credentials(user)
        return None if credentials is None else credentials.for_mechanism(mechanism)

    def _token_keys(self, token_id: str, mechanism: str) -> ScramCredential | None:
        token, secret = (
            self._credentials.delegation_token(token_id),
            self._credentials.token_secret(),
        )
        if token is None or secret is None or not token.is_valid(self._wall_ms()):
            return None
        password = tokens.delegation_password(tokens.delegation_hmac(secret, token_id))
        return self._decoys.token_keys(token_id, password, mechanism)


class SaslExchange:
    """One SASL exchange of one connection."""

    def __init__(
        self, logins: LoginService, machine: Mechanism, mechanism: str, address: str
    ) -> None:
        self._logins = logins
        self._machine = machine
        self.mechanism = mechanism
        self._address = address
        self._messages = 0
        self._is_failed = False  # a failure was counted; only the final message is left

    async def respond(self, data: bytes) -> tuple[bytes, Identity | None]:
        """Take the client's message; returns the answer, and the identity once it is proven.

        Raises:
            LoginRefused: the login failed, and the exchange is over.
        """
        try:
            self._messages += 1
            if self._messages > MESSAGES_MAX:
                refuse("too many messages in one exchange")
            answer, identity = await self._step(data)
        except LoginRefused as refusal:
            if not self._is_failed:
                await self._logins.failed(refusal, self.mechanism, self._address)
            raise
        if identity is None:
            return answer, None
        identity = replace(identity, method=self.mechanism)
        return answer, self._logins.succeeded(identity, self._address)

    async def _step(self, data: bytes) -> tuple[bytes, Identity | None]:
        step = self._machine.step(data)
        if isinstance(self._machine, ScramServer):
            self._logins.check_lock(self._machine.user, self._address)
        if isinstance(step, SendChallenge):
            return step.data, None
        if isinstance(step, LoginProven):
            return step.data, self._logins.by_scram(step, self.mechanism)
        if isinstance(step, CheckPassword):
            return b"", await self._logins.by_password(step, self._address)
        assert isinstance(self._machine, OauthBearer), "only OAUTHBEARER sends tokens"
        try:
            return b"", await self._logins.by_bearer(step)
        except LoginRefused as refusal:
            # RFC 7628: the client gets the error, answers with one byte, and then the login fails.
            await self._logins.failed(refusal, self.mechanism, self._address)
            self._is_failed = True
            return self._machine.explained().data, None
