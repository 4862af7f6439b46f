"""Logging in: the client's side of PLAIN, SCRAM and OAUTHBEARER. Pure.

    exchange = exchange_for(settings, nonce)
    message = exchange.first()
    while message is not None:
        message = exchange.answer(<what the node said>)

With SCRAM the node has to show, too, that it knows the user; one that cannot is not believed, and
one that asks for so few iterations that the password could be guessed from our answer gets none.
"""

import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from mainstem.model import scram
from mainstem.model.errors import ErrorCode, InvalidRequest

ITERATIONS_MAX: Final = 1_000_000  # a node that asks for more only wants to keep us busy
_DIGITS_MAX: Final = 7
_REASON_LENGTH_MAX: Final = 200
_LEAD: Final = "\0"
_MARK: Final = "\x01"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


TokenSource = Callable[[], Awaitable[str]]


class SaslSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are.

    ``token`` is for OAUTHBEARER, and ``token_source`` is asked for a fresh one at each login;
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
        """The next message; None when nothing is left to say."""
        ...


def exchange_for(settings: SaslSettings, nonce: str) -> SaslExchange:
    """The exchange of the chosen mechanism; ``nonce`` is fresh chance.

    Raises:
        InvalidRequest: an unknown mechanism, or a secret that it cannot carry.
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
    """RFC 4616: everything is said at once."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise _not_believed("PLAIN has nothing more to ask")
        return None


class _OauthBearer:
    """RFC 7628: whatever is asked back is about a failure, and has to be answered with one byte."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._failure: bytes | None = None

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        if self._failure is not None:
            raise _refused(self._failure)  # it should have said so by an error code
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
            raise _not_believed("its answer does not belong to our question")
        if not iterations.isdecimal() or len(iterations) > _DIGITS_MAX:
            raise _not_believed("its answer is not SCRAM")
        if not scram.ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise _not_believed(f"it asks for {iterations} iterations")
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
            raise _not_believed("it does not know our password")


def _check_text(forbidden: str, *texts: str) -> None:
    """Refuse what would be read as the end of the text, or that is not there at all."""
    if not all(texts) or any(forbidden in text for text in texts):
        raise InvalidRequest(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "a name, password or token is missing, or has characters that cannot be sent",
            remedy="check what is read as name and secret",
        )


def _parts(message: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in message.split(","))


def _text(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise _not_believed("its answer is not SCRAM") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _not_believed("its answer is not SCRAM") from None


def _not_believed(cause: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.AUTHENTICATION_FAILED,
        f"the node is not what it says it is: {cause}",
        remedy="check the address, and that nobody stands in between",
    )


def _refused(reason: bytes) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.AUTHENTICATION_FAILED,
        f"the node refused the login: {reason[:_REASON_LENGTH_MAX].decode(errors='replace')}",
        remedy="check name and secret",
    )
