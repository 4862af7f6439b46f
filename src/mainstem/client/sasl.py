"""Logging in: the client's side of PLAIN, SCRAM and OAUTHBEARER. Pure.

    exchange = exchange_for(settings, nonce)
    message = exchange.first()
    while message is not None:
        message = exchange.answer(<the node's message>)

With SCRAM the node also has to prove that it knows the user's keys, else the login fails. A node
that requests so few iterations that our proof would reveal the password gets none.
"""

import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from mainstem.model import scram
from mainstem.model.errors import ErrorCode, InvalidRequest

ITERATIONS_MAX: Final = 1_000_000  # more would let a node exhaust our CPU
_DIGITS_MAX: Final = 7
_REASON_LENGTH_MAX: Final = 200
_LEAD: Final = "\0"
_MARK: Final = "\x01"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


TokenSource = Callable[[], Awaitable[str]]


class SaslSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The mechanism and credentials.

    ``token`` is for OAUTHBEARER, and ``token_source`` returns a current one at each login;
    ``by_token``: user and password are a delegation token's id and its HMAC in base64.
    """

    mechanism: str = "SCRAM-SHA-512"
    username: str = ""
    password: str = ""
    token: str = ""
    token_source: TokenSource | None = None
    by_token: bool = False

    def __repr__(self) -> str:
        return f"SaslSettings(mechanism={self.mechanism!r}, username={self.username!r})"


class SaslExchange(Protocol):
    """The client side of one SASL exchange."""

    def first(self) -> bytes:
        """The first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The next message; None at the end."""
        ...


def exchange_for(settings: SaslSettings, nonce: str) -> SaslExchange:
    """The exchange of the chosen mechanism; ``nonce`` is random for each login.

    Raises:
        InvalidRequest: the mechanism is unknown, or cannot carry the secret.
    """
    if settings.mechanism == "PLAIN":
        _check_text(_LEAD, settings.username, settings.password)
        return _Plain(f"{_LEAD}{settings.username}{_LEAD}{settings.password}".encode())
    if settings.mechanism == "OAUTHBEARER":
        _check_text(_MARK, settings.token)
        return _OauthBearer(f"n,,{_MARK}auth=Bearer {settings.token}{_MARK}{_MARK}".encode())
    if settings.mechanism in scram.ALGORITHMS:
        _check_text(_LEAD, settings.username, settings.password)
        return _Scram(settings, nonce)
    raise InvalidRequest(
        ErrorCode.UNSUPPORTED_MECHANISM,
        f"{settings.mechanism!r} is not known",
        remedy=f"use {', '.join(MECHANISMS)}",
    )


class _Plain:
    """RFC 4616: one message with everything."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise _not_believed("PLAIN has only one message")
        return None


class _OauthBearer:
    """RFC 7628: any challenge reports a failure, and has to be answered with one byte."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._failure: bytes | None = None

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if self._failure is not None:
            raise _refused(self._failure)  # it should have used an error code
        if not challenge:
            return None
        self._failure = challenge
        return _MARK.encode()


class _Scram:
    """The client side of SCRAM (RFC 5802)."""

    def __init__(self, settings: SaslSettings, nonce: str) -> None:
        self._settings = settings
        self._nonce = nonce
        name = settings.username.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}" + (",tokenauth=true" if settings.by_token else "")
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._signature is not None:
            self._check(challenge)
            return None
        asked = _text(challenge)
        parts = _parts(asked)
        nonce, iterations = parts.get("r", ""), parts.get("i", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce or "m" in parts:
            raise _not_believed("its response does not match our request")
        if not iterations.isdecimal() or len(iterations) > _DIGITS_MAX:
            raise _not_believed("its response is not SCRAM")
        if not scram.ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise _not_believed(f"it requests {iterations} iterations")
        mechanism = self._settings.mechanism
        salt = _decoded(parts.get("s", ""))
        salted = scram.salted_password(mechanism, self._settings.password, salt, int(iterations))
        final = f"c=biws,r={nonce}"
        signed = f"{self._bare},{asked},{final}".encode()
        key = scram.client_key(mechanism, salted)
        proof = scram.keyed(mechanism, scram.digest(mechanism, key), signed)
        self._signature = scram.keyed(
            mechanism, scram.keyed(mechanism, salted, b"Server Key"), signed
        )
        shown = base64.b64encode(scram.exclusive_or(key, proof)).decode()
        return f"{final},p={shown}".encode()

    def _check(self, challenge: bytes) -> None:
        assert self._signature is not None, "checked by the caller"
        parts = _parts(_text(challenge))
        if "e" in parts:
            raise _refused(parts["e"].encode())
        if not hmac.compare_digest(_decoded(parts.get("v", "")), self._signature):
            raise _not_believed("it does not know the password")


def _check_text(forbidden: str, *texts: str) -> None:
    """Refuse a value that is missing or has characters that would end the text."""
    if not all(texts) or any(forbidden in text for text in texts):
        raise InvalidRequest(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "a name, password or token is missing, or has characters that cannot be sent",
            remedy="check the name and the secret",
        )


def _parts(message: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in message.split(","))


def _text(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise _not_believed("its response is not SCRAM") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _not_believed("its response is not SCRAM") from None


def _not_believed(cause: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.AUTHENTICATION_FAILED,
        f"the node could not prove its identity: {cause}",
        remedy="check the address; the connection may be intercepted",
    )


def _refused(reason: bytes) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.AUTHENTICATION_FAILED,
        f"the node refused the login: {reason[:_REASON_LENGTH_MAX].decode(errors='replace')}",
        remedy="check name and secret",
    )
