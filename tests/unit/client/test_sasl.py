"""The client's side of logins, against the server's own machines and against impostors."""

import asyncio
import base64
import itertools
from typing import Any

import pytest
from tests.unit.client.peer import ScriptedPeer

from mainstem.client.connection import Connection, ConnectionSettings
from mainstem.client.network.login import renewal_pause_s
from mainstem.client.sasl import ITERATIONS_MAX, SaslExchange, SaslSettings, exchange_for
from mainstem.model import scram
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authentication.sasl import (
    CheckBearer,
    CheckPassword,
    LoginProven,
    LoginRefused,
    OauthBearer,
    Plain,
    SendChallenge,
)
from mainstem.security.authentication.scram import CredentialLookup, ScramServer
from mainstem.security.authentication.scram_decoys import ScramDecoys
from mainstem.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from mainstem.wire.kafka.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from mainstem.wire.kafka.messages.sasl_handshake import SaslHandshakeResponse

SCRAMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
NAMES = ["alice", "a,b=c", "Zoë", "=2C"]
PASSWORD = "pass, =wörd"
SALT = b"0123456789abcdef"


def settings(mechanism: str, **rest: Any) -> SaslSettings:
    known = {"username": "alice", "password": PASSWORD, "token": "a.b.c"} | rest
    return SaslSettings(mechanism=mechanism, **known)


def server(mechanism: str, user: str, password: str = PASSWORD) -> ScramServer:
    credential = scram.make_credential(
        mechanism, password, salt=SALT, iterations=scram.ITERATIONS_MIN
    )
    keys = CredentialLookup(
        lambda name, _: credential if name == user else None,
        lambda name, _: credential if name == f"token-of-{user}" else None,
        ScramDecoys(lambda: b"secret"),
    )
    return ScramServer(mechanism, keys, "server-nonce")


def exchanged(client: SaslExchange, node: ScramServer) -> LoginProven:
    """Carry messages to and fro until both sides are content."""
    message: bytes | None = client.first()
    while message is not None:
        step = node.step(message)
        assert isinstance(step, SendChallenge | LoginProven)
        message = client.answer(step.data)
    assert isinstance(step, LoginProven)
    return step


def begun(mechanism: str) -> tuple[SaslExchange, ScramServer, str]:
    """An exchange up to the server's first answer."""
    client, node = exchange_for(settings(mechanism), "our-nonce"), server(mechanism, "alice")
    step = node.step(client.first())
    assert isinstance(step, SendChallenge)
    return client, node, step.data.decode()


def failure(client: SaslExchange, challenge: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        client.answer(challenge)
    assert caught.value.code is ErrorCode.AUTHENTICATION_FAILED
    return caught.value


def test_plain_says_name_and_password_at_once() -> None:
    client = exchange_for(settings("PLAIN"), "")
    assert Plain().step(client.first()) == CheckPassword("alice", PASSWORD)
    assert client.answer(b"") is None


def test_plain_tells_nothing_more_to_a_node_that_asks_on() -> None:
    failure(exchange_for(settings("PLAIN"), ""), b"more, please")


def test_a_bearer_token_is_shown_as_the_rfc_has_it() -> None:
    client = exchange_for(settings("OAUTHBEARER"), "")
    assert OauthBearer().step(client.first()) == CheckBearer("a.b.c", "")
    assert client.answer(b"") is None


def test_a_refused_bearer_token_is_answered_with_one_byte_and_never_taken_for_a_login() -> None:
    client = exchange_for(settings("OAUTHBEARER"), "")
    client.first()
    assert client.answer(b'{"status":"invalid_token"}') == b"\x01"
    assert "invalid_token" in failure(client, b"").cause


@pytest.mark.parametrize("mechanism", SCRAMS)
@pytest.mark.parametrize("name", NAMES)
def test_scram_shows_the_password_without_sending_it(mechanism: str, name: str) -> None:
    client = exchange_for(settings(mechanism, username=name), "our-nonce")
    proven = exchanged(client, server(mechanism, name))
    assert (proven.user, proven.by_token) == (name, False)


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_scram_logs_in_with_a_delegation_token(mechanism: str) -> None:
    wanted = settings(mechanism, username="token-of-alice", by_token=True)
    assert exchanged(exchange_for(wanted, "our-nonce"), server(mechanism, "alice")).by_token


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_a_wrong_password_does_not_convince_the_node(mechanism: str) -> None:
    client = exchange_for(settings(mechanism, password="wrong"), "our-nonce")
    with pytest.raises(LoginRefused):
        exchanged(client, server(mechanism, "alice"))


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_a_node_that_does_not_know_the_password_is_not_believed(mechanism: str) -> None:
    client, _, challenge = begun(mechanism)
    assert client.answer(challenge.encode()) is not None
    size = scram.KEY_BYTES[mechanism]
    for signature in (b"", b"v=", b"v=" + base64.b64encode(bytes(size)), b"v=!!", b"\xff"):
        failure(client, signature)


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_every_flipped_bit_of_the_nodes_signature_is_noticed(mechanism: str) -> None:
    client, node, challenge = begun(mechanism)
    final = client.answer(challenge.encode())
    assert final is not None
    proven = node.step(final)
    assert isinstance(proven, LoginProven)
    signature = base64.b64decode(proven.data[2:])
    for at in range(len(signature)):
        forged = bytearray(signature)
        forged[at] ^= 1
        failure(client, b"v=" + base64.b64encode(forged))
    assert client.answer(proven.data) is None


def test_a_node_that_says_no_inside_the_exchange_is_understood() -> None:
    client, _, challenge = begun("SCRAM-SHA-256")
    client.answer(challenge.encode())
    assert "invalid-proof" in failure(client, b"e=invalid-proof").cause


SALT_TEXT = base64.b64encode(SALT).decode()


@pytest.mark.parametrize(
    "challenge",
    [
        "",
        f"r=our-nonce,s={SALT_TEXT},i=4096",  # nothing of its own in the nonce
        f"r=another-nonce,s={SALT_TEXT},i=4096",
        f"s={SALT_TEXT},i=4096",
        f"r=our-nonce-x,s={SALT_TEXT}",
        f"r=our-nonce-x,s={SALT_TEXT},i=many",
        f"r=our-nonce-x,s={SALT_TEXT},i=-4096",
        f"r=our-nonce-x,s={SALT_TEXT},i=0",
        f"r=our-nonce-x,s={SALT_TEXT},i=1",  # would make the password cheap to guess
        f"r=our-nonce-x,s={SALT_TEXT},i={scram.ITERATIONS_MIN - 1}",
        f"r=our-nonce-x,s={SALT_TEXT},i={ITERATIONS_MAX + 1}",
        f"r=our-nonce-x,s={SALT_TEXT},i={'9' * 5_000}",
        "r=our-nonce-x,s=!!!,i=4096",
        f"m=unknown,r=our-nonce-x,s={SALT_TEXT},i=4096",
        "r=our-nonce-ü,s=,i=4096",
    ],
)
def test_a_node_with_strange_wishes_gets_no_proof(challenge: str) -> None:
    client = exchange_for(settings("SCRAM-SHA-256"), "our-nonce")
    client.first()
    failure(client, challenge.encode())


def test_an_unknown_mechanism_is_named_with_those_that_are_known() -> None:
    with pytest.raises(InvalidRequest, match="OAUTHBEARER") as caught:
        exchange_for(settings("GSSAPI"), "")
    assert caught.value.code is ErrorCode.UNSUPPORTED_MECHANISM


@pytest.mark.parametrize(
    ("mechanism", "wrong"),
    [
        ("PLAIN", {"username": "alice\0bob"}),
        ("PLAIN", {"password": "x\0y"}),
        ("PLAIN", {"password": ""}),
        ("SCRAM-SHA-256", {"username": ""}),
        ("OAUTHBEARER", {"token": ""}),
        ("OAUTHBEARER", {"token": "a\x01auth=Bearer b"}),
    ],
)
def test_a_secret_that_cannot_be_sent_is_refused_before_it_is(
    mechanism: str, wrong: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        exchange_for(settings(mechanism, **wrong), "")
    assert caught.value.code is ErrorCode.UNACCEPTABLE_CREDENTIAL


def test_settings_do_not_show_their_secrets() -> None:
    shown = repr(settings("PLAIN", token="t0ken"))
    assert "alice" in shown
    assert PASSWORD not in shown
    assert "t0ken" not in shown
    assert PASSWORD not in repr(ConnectionSettings(sasl=settings("PLAIN")))


# On a connection


class LoginPeer(ScriptedPeer):
    """Says about a login what it was told to say, whatever is sent."""

    def __init__(self, *answers: SaslAuthenticateResponse, offers: str = "PLAIN") -> None:
        self.offers = [offers]
        self.sent: list[bytes] = []
        self._answers = list(answers)
        super().__init__({"SaslHandshake": self.handshake, "SaslAuthenticate": self.authenticate})

    def handshake(self, request: Any, version: int) -> SaslHandshakeResponse:
        known = request.mechanism in self.offers
        return SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=self.offers)

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> Any:
        self.sent.append(bytes(request.auth_bytes))
        return self._answers.pop(0)


async def dialled(peer: LoginPeer, sasl: SaslSettings) -> Connection:
    async with peer:
        connection = await Connection.open("127.0.0.1", peer.port, ConnectionSettings(sasl=sasl))
        connection.close()
        return connection


async def refused(peer: LoginPeer, sasl: SaslSettings) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        await dialled(peer, sasl)
    return caught.value


async def test_a_connection_logs_in_before_anything_else() -> None:
    peer = LoginPeer(SaslAuthenticateResponse())
    await dialled(peer, settings("PLAIN"))
    assert peer.sent == [f"\0alice\0{PASSWORD}".encode()]
    assert [name for name, _, _ in peer.requests] == [
        "ApiVersions",
        "SaslHandshake",
        "SaslAuthenticate",
    ]


async def test_a_node_that_says_no_is_an_error_that_no_retry_changes() -> None:
    peer = LoginPeer(SaslAuthenticateResponse(error_code=58, error_message="wrong"))
    error = await refused(peer, settings("PLAIN"))
    assert error.code is ErrorCode.AUTHENTICATION_FAILED
    assert not error.retriable
    assert PASSWORD not in str(error)


async def test_a_node_that_does_not_serve_the_mechanism_is_sent_no_secret() -> None:
    peer = LoginPeer(offers="SCRAM-SHA-512")
    error = await refused(peer, settings("PLAIN"))
    assert error.code is ErrorCode.UNSUPPORTED_MECHANISM
    assert "SCRAM-SHA-512" in error.cause
    assert peer.sent == []


@pytest.mark.parametrize("mechanism", SCRAMS)
async def test_a_connection_to_an_impostor_is_not_made(mechanism: str) -> None:
    """He answers as a node would, and then shows a signature that he made up."""

    class Impostor(LoginPeer):
        def authenticate(self, request: SaslAuthenticateRequest, version: int) -> Any:
            said = bytes(request.auth_bytes).decode()
            self.sent.append(said.encode())
            if len(self.sent) > 1:
                forged = base64.b64encode(bytes(scram.KEY_BYTES[mechanism])).decode()
                return SaslAuthenticateResponse(auth_bytes=f"v={forged}".encode())
            nonce = said.rpartition("r=")[2]
            answer = f"r={nonce}-his,s={SALT_TEXT},i=4096"
            return SaslAuthenticateResponse(auth_bytes=answer.encode())

    peer = Impostor(offers=mechanism)
    assert (await refused(peer, settings(mechanism))).code is ErrorCode.AUTHENTICATION_FAILED
    assert not any(PASSWORD.encode() in message for message in peer.sent)


async def test_a_refused_bearer_token_fails_even_where_the_node_forgets_to_say_so() -> None:
    peer = LoginPeer(
        SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}'),
        SaslAuthenticateResponse(),
        offers="OAUTHBEARER",
    )
    error = await refused(peer, settings("OAUTHBEARER"))
    assert error.code is ErrorCode.AUTHENTICATION_FAILED
    assert peer.sent[1:] == [b"\x01"]


# Logins that hold for a while


class ForgetfulPeer(LoginPeer):
    """Lets everybody in for a moment, and answers heartbeats."""

    def __init__(self, lifetime_ms: int, *, refuses_after: int = 1_000) -> None:
        super().__init__()
        self.handlers["Heartbeat"] = lambda request, version: HeartbeatResponse()
        self._lifetime_ms = lifetime_ms
        self._refuses_after = refuses_after

    def authenticate(self, request: SaslAuthenticateRequest, version: int) -> Any:
        self.sent.append(bytes(request.auth_bytes))
        if len(self.sent) > self._refuses_after:
            return SaslAuthenticateResponse(error_code=58, error_message="no longer")
        return SaslAuthenticateResponse(session_lifetime_ms=self._lifetime_ms)


async def test_a_login_is_repeated_between_calls_before_its_time_is_over() -> None:
    async with ForgetfulPeer(300) as peer:
        settings_ = ConnectionSettings(sasl=settings("PLAIN"), in_flight_max=2)
        connection = await Connection.open("127.0.0.1", peer.port, settings_)

        async def busy() -> None:
            async with asyncio.timeout(10):
                while len(peer.sent) < 4:
                    await connection.call(HeartbeatRequest())

        await asyncio.gather(*(busy() for _ in range(6)))
        connection.close()
        asked = [name for name, _, _ in peer.requests]
    assert asked.count("Heartbeat") > 10
    # Nothing comes between the two parts of a login.
    assert all(
        asked[at + 1] == "SaslAuthenticate"
        for at, name in enumerate(asked)
        if name == "SaslHandshake"
    )


async def test_a_connection_whose_login_is_refused_later_ends_with_the_reason() -> None:
    async def call_until_refused() -> None:
        async with ForgetfulPeer(200, refuses_after=1) as peer:
            settings_ = ConnectionSettings(sasl=settings("PLAIN"))
            connection = await Connection.open("127.0.0.1", peer.port, settings_)
            async with asyncio.timeout(10):
                while True:
                    await connection.call(HeartbeatRequest())

    with pytest.raises(InvalidRequest, match="no longer") as caught:
        await call_until_refused()
    assert caught.value.code is ErrorCode.AUTHENTICATION_FAILED


async def test_a_login_without_an_end_is_not_repeated() -> None:
    async with ForgetfulPeer(0) as peer:
        settings_ = ConnectionSettings(sasl=settings("PLAIN"))
        connection = await Connection.open("127.0.0.1", peer.port, settings_)
        await asyncio.sleep(0.3)
        connection.close()
        assert len(peer.sent) == 1


async def test_each_login_shows_a_fresh_token() -> None:
    numbers = itertools.count(1)

    async def fresh() -> str:
        return f"token-{next(numbers)}"

    async with ForgetfulPeer(200) as peer:
        peer.offers = ["OAUTHBEARER"]
        sasl = SaslSettings(mechanism="OAUTHBEARER", token_source=fresh)
        connection = await Connection.open("127.0.0.1", peer.port, ConnectionSettings(sasl=sasl))
        async with asyncio.timeout(10):
            while len(peer.sent) < 3:
                await connection.call(HeartbeatRequest())
        connection.close()
        shown = peer.sent
    assert all(f"Bearer token-{n}\x01".encode() in shown[n - 1] for n in (1, 2, 3))


def test_a_login_is_repeated_well_before_its_end() -> None:
    assert renewal_pause_s(60_000) == pytest.approx(48.0)
    assert renewal_pause_s(1) > 0
