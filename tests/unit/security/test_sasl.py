"""SASL, message by message: what is proven, what is refused, what nobody may become."""

import base64
import itertools

import pytest
from scramp import ScramClient, ScramException

from mainstem.model import scram as arithmetic
from mainstem.model.errors import ErrorCode
from mainstem.model.scram import ScramCredential
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

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
SALT = b"s" * 24


def server(mechanism: str, **passwords: str) -> ScramServer:
    def of_user(user: str, mechanism: str) -> ScramCredential | None:
        if user not in passwords:
            return None
        return arithmetic.make_credential(
            mechanism, passwords[user], salt=SALT, iterations=arithmetic.ITERATIONS_MIN
        )

    keys = CredentialLookup(of_user, lambda *_: None, ScramDecoys(lambda: b"secret"))
    return ScramServer(mechanism, keys, "server-nonce")


def first(made: ScramServer, message: str) -> str:
    step = made.step(message.encode())
    assert isinstance(step, SendChallenge)
    return step.data.decode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", ["pencil", "pässwörd", "a" * 500, "with,comma=and more"])
def test_an_independent_client_logs_in(mechanism: str, password: str) -> None:
    made = server(mechanism, alice=password)
    client = ScramClient([mechanism], "alice", password)
    client.set_server_first(first(made, client.get_client_first()))
    step = made.step(client.get_client_final().encode())
    assert isinstance(step, LoginProven)
    assert step.user == "alice"
    client.set_server_final(step.data.decode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(mechanism: str) -> None:
    made = server(mechanism, alice="right")
    client = ScramClient([mechanism], "alice", "wrong")
    client.set_server_first(first(made, client.get_client_first()))
    with pytest.raises(LoginRefused) as refused:
        made.step(client.get_client_final().encode())
    assert refused.value.code is ErrorCode.AUTHENTICATION_FAILED
    assert "right" not in str(refused.value)


def test_a_user_who_is_not_there_looks_like_one_who_is() -> None:
    answers = []
    for _ in range(2):
        made = server("SCRAM-SHA-256", alice="right")
        client = ScramClient(["SCRAM-SHA-256"], "mallory", "x", c_nonce="n" * 24)
        answers.append(first(made, client.get_client_first()))
        client.set_server_first(answers[-1])
        with pytest.raises(LoginRefused) as refused:
            made.step(client.get_client_final().encode())
        assert str(refused.value) == str(LoginRefused("anything"))
    assert answers[0] == answers[1], "the same salt every time, as a real user has"
    assert ",i=4096" in answers[0]


def test_impersonation_an_authzid_of_somebody_else_is_refused() -> None:
    with pytest.raises(LoginRefused):
        server("SCRAM-SHA-256", alice="p").step(b"n,a=bob,n=alice,r=abc")
    with pytest.raises(LoginRefused):
        Plain().step(b"bob\0alice\0secret")
    assert Plain().step(b"alice\0alice\0secret") == CheckPassword("alice", "secret")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,r=abc,n=alice",
        b"n,,n=,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=abc",
        b"n,,m=ext,n=alice,r=abc",
        b"n,,n=alice,r=\xff",
        b"n" * 70_000,
        "n,,n=alice,r=ü".encode(),
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        server("SCRAM-SHA-256", alice="p").step(message)


def test_every_part_of_the_final_message_counts() -> None:
    def exchange() -> tuple[ScramServer, str]:
        made = server("SCRAM-SHA-256", alice="p")
        client = ScramClient(["SCRAM-SHA-256"], "alice", "p", c_nonce="n" * 24)
        client.set_server_first(first(made, client.get_client_first()))
        return made, client.get_client_final()

    _, right = exchange()
    parts = right.split(",")
    wrong = [
        ",".join([parts[0], "r=another", parts[2]]),
        ",".join(["c=eSws", parts[1], parts[2]]),
        ",".join([parts[0], parts[1]]),
        ",".join([parts[0], parts[1], "p="]),
        ",".join([parts[0], parts[1], "p=!!!"]),
        ",".join([parts[0], parts[1], "p=" + base64.b64encode(bytes(32)).decode()]),
        ",".join([parts[0], parts[1], "p=" + base64.b64encode(bytes(64)).decode()]),
        "",
    ]
    for message in wrong:
        made, _ = exchange()
        with pytest.raises(LoginRefused):
            made.step(message.encode())
    made, message = exchange()
    assert isinstance(made.step(message.encode()), LoginProven)


def test_names_may_have_commas_and_equals_signs() -> None:
    made = server("SCRAM-SHA-256", **{"CN=a,O=b": "p"})
    first(made, "n,,n=CN=3Da=2CO=3Db,r=abc")
    assert made.user == "CN=a,O=b"


def test_the_server_proves_itself_too() -> None:
    made = server("SCRAM-SHA-256", alice="p")
    client = ScramClient(["SCRAM-SHA-256"], "alice", "p")
    client.set_server_first(first(made, client.get_client_first()))
    step = made.step(client.get_client_final().encode())
    assert isinstance(step, LoginProven)
    forged = b"v=" + base64.b64encode(bytes(32))
    with pytest.raises(ScramException):
        client.set_server_final(forged.decode())


@pytest.mark.parametrize(
    "message", [b"", b"alice", b"\0alice", b"\0\0secret", b"\0alice\0", b"a\0b\0c\0d", b"\0\xff\0x"]
)
def test_plain_refuses_what_is_not_name_and_password(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        Plain().step(message)


def test_oauthbearer_finds_the_token_among_extensions() -> None:
    step = OauthBearer().step(b"n,,\x01auth=Bearer abc.def.ghi\x01logicalCluster=x\x01\x01")
    assert step == CheckBearer("abc.def.ghi")
    named = OauthBearer().step(b"n,a=alice,\x01auth=bearer t\x01\x01")
    assert named == CheckBearer("t", "alice")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer abc",
        b"n,alice,\x01auth=Bearer abc\x01\x01",
        b"p,,\x01auth=Bearer abc\x01\x01",
        b"x" * 70_000,
    ],
)
def test_oauthbearer_refuses_what_carries_no_token(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        OauthBearer().step(message)


def test_a_bad_token_is_explained_once_and_then_it_is_over() -> None:
    machine = OauthBearer()
    assert b"invalid_token" in machine.explained().data
    with pytest.raises(LoginRefused):
        machine.step(b"\x01")


def test_no_two_parts_of_the_arithmetic_are_the_same() -> None:
    made = arithmetic.make_credential("SCRAM-SHA-256", "p", salt=SALT, iterations=4096)
    salted = arithmetic.salted_password("SCRAM-SHA-256", "p", SALT, 4096)
    values = [made.stored_key, made.server_key, salted]
    assert all(a != b for a, b in itertools.combinations(values, 2))
    assert arithmetic.matches(made, "p")
    assert not arithmetic.matches(made, "q")
