"""What SASL exchanges have in common, and the mechanisms that need one message.

Pure. A machine takes what the client sent and returns the next step:

    SendChallenge                send this and wait for more
    CheckPassword, CheckBearer   the driver checks it, which may take a while
    LoginProven                  the client has proven its identity

Anything else raises ``LoginRefused``; the client does not learn which part was wrong.
"""

from typing import Final, NoReturn, Protocol

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest

MESSAGE_BYTES_MAX: Final = 64 * 1024
_SEPARATOR: Final = "\x01"


class LoginRefused(InvalidRequest):
    """The login failed. ``reason`` is for the audit, never for the client.

    ``unseen``: it was refused because of a lock, without checking the credentials.
    """

    def __init__(self, reason: str, *, user: str = "", unseen: bool = False) -> None:
        super().__init__(
            ErrorCode.AUTHENTICATION_FAILED, "the login failed", remedy="check name and secret"
        )
        self.reason = reason
        self.user = user
        self.unseen = unseen


class SendChallenge(Struct, frozen=True):
    """Send this to the client; the exchange continues."""

    data: bytes


class CheckPassword(Struct, frozen=True):
    """Check whether this is the user's password."""

    user: str
    password: str


class CheckBearer(Struct, frozen=True):
    """Check this token. ``authzid`` is the requested authorization id, if any."""

    token: str
    authzid: str = ""


class LoginProven(Struct, frozen=True):
    """The client has proven that it is ``user``; ``data`` is the final server message."""

    user: str
    data: bytes = b""
    by_token: bool = False


Step = SendChallenge | CheckPassword | CheckBearer | LoginProven


class Mechanism(Protocol):
    """One exchange of one mechanism."""

    def step(self, data: bytes) -> Step:
        """Take the client's next message."""
        ...


class Plain:
    """PLAIN (RFC 4616): authzid NUL authcid NUL password."""

    def step(self, data: bytes) -> Step:
        """Name and password, to be checked."""
        parts = text_of(data).split("\0")
        if len(parts) != 3:
            refuse("a PLAIN message has three parts")
        authzid, user, password = parts
        if not user or not password:
            refuse("an empty name or password", user=user)
        if authzid not in ("", user):
            refuse("the authorization id is another user", user=user)
        return CheckPassword(user, password)


class OauthBearer:
    """OAUTHBEARER (RFC 7628): a token in one message.

    After an invalid token the client gets an error message and answers it with one byte; only then
    has the exchange failed.
    """

    def __init__(self) -> None:
        self._explained = False

    def step(self, data: bytes) -> Step:
        """The token, to be checked."""
        if self._explained:
            refuse("the token was not accepted")
        parts = text_of(data).split(_SEPARATOR)
        header, pairs = parts[0], dict(part.partition("=")[::2] for part in parts[1:] if part)
        flag, _, rest = header.partition(",")
        authzid, comma, left = rest.partition(",")
        if flag not in ("n", "y") or not comma or left or parts[-2:] != ["", ""]:
            refuse("not an OAUTHBEARER message")
        if authzid and not authzid.startswith("a="):
            refuse("not an OAUTHBEARER message")
        kind, _, token = pairs.get("auth", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            refuse("no bearer token")
        return CheckBearer(token.strip(), unescaped(authzid.removeprefix("a=")))

    def explained(self) -> SendChallenge:
        """The error message to the client for a token that was not accepted."""
        self._explained = True
        return SendChallenge(b'{"status":"invalid_token"}')


def text_of(data: bytes) -> str:
    """A message as text; refused if it is not UTF-8."""
    if len(data) > MESSAGE_BYTES_MAX:
        refuse(f"a message of {len(data)} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        refuse("a message that is not UTF-8")


def unescaped(name: str) -> str:
    """A saslname: ``=2C`` and ``=3D`` mean comma and equals sign, other ``=`` are invalid."""
    if "=" in name.replace("=2C", "").replace("=3D", ""):
        refuse("a name with an invalid escape")
    return name.replace("=2C", ",").replace("=3D", "=")


def refuse(reason: str, *, user: str = "") -> NoReturn:
    """End the exchange."""
    raise LoginRefused(reason, user=user)
