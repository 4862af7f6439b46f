"""Attacks on who one is: tokens, other people's names, guessing, waiting, and what is written down.

The table of all named attacks and their tests is in ``docs/internals/security.md``.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from msgspec.structs import replace
from tests.integration.security import requests
from tests.integration.security.issuer import AUDIENCE, ISSUER, KEY, Issuer, token
from tests.integration.security.kit import (
    ADMIN_PASSWORD,
    USER_PASSWORD,
    Client,
    SecureNode,
    codes,
    rule,
)
from tests.integration.security.lasting import flags

from mainstem.model import scram
from mainstem.security.authorisation.acl import Operation, PatternType, ResourceType
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest
from mainstem.wire.kafka.messages.create_delegation_token import CreateDelegationTokenRequest
from mainstem.wire.kafka.messages.describe_delegation_token import DescribeDelegationTokenRequest
from mainstem.wire.kafka.messages.fetch import FetchRequest
from mainstem.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from mainstem.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from mainstem.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

SASL_FAILED = 58
LOGIN_TIMEOUT_MS = 1_500


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@pytest.fixture(scope="module")
def node(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    settings = issuer.settings | {
        "security.login_timeout_ms": LOGIN_TIMEOUT_MS,
        "security.super_users": "User:root",
        "security.oauth_groups_claim": "groups",
        "logs.level": "debug",
    }
    with SecureNode(tmp_path_factory.mktemp("attacks"), *flags(settings)) as made:
        yield made


@pytest.fixture
def stranger(node: SecureNode) -> Iterator[Client]:
    with Client(node.address("SASL_PLAINTEXT")) as client:
        yield client


def audit(node: SecureNode) -> list[dict[str, str]]:
    text = (node.data_dir / "audit.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


# Tokens


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def forged(head: dict[str, object], sign: Callable[[bytes], bytes] = lambda _: b"") -> str:
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "admin", "exp": int(time.time()) + 600}
    said = f"{part(head)}.{part(body)}"
    signature = base64.urlsafe_b64encode(sign(said.encode())).decode().rstrip("=")
    return f"{said}.{signature}"


def signed_by(key: RSAKey, **head: object) -> str:
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "admin", "exp": int(time.time()) + 600}
    return jwt.encode({"alg": "RS256", **head}, body, key)


STRANGE_KEY = RSAKey.generate_key(2048, {"kid": "strange"})
PUBLIC_PEM = KEY.as_pem(private=False)
FORGERIES: dict[str, Callable[[], str]] = {
    "alg=none": lambda: forged({"alg": "none"}),
    "alg=None": lambda: forged({"alg": "None", "kid": "one"}),
    "no alg": lambda: forged({"kid": "one"}),
    "the public key as a shared secret": lambda: forged(
        {"alg": "HS256", "kid": "one"}, lambda said: hmac.digest(PUBLIC_PEM, said, "sha256")
    ),
    "unknown key": lambda: signed_by(STRANGE_KEY, kid="strange"),
    "foreign key under a known name": lambda: signed_by(STRANGE_KEY, kid="one"),
    "a key that the token brings along": lambda: signed_by(
        STRANGE_KEY, jwk=dict(STRANGE_KEY.as_dict(private=False))
    ),
    "a key named by a path": lambda: signed_by(STRANGE_KEY, kid="../../../../dev/null"),
    "wrong audience": lambda: token("admin", aud="somebody-else"),
    "no audience": lambda: token("admin", aud=None),
    "wrong issuer": lambda: token("admin", iss=f"{ISSUER}.evil.test"),
    "expired": lambda: token("admin", exp=int(time.time()) - 60),
    "no expiry": lambda: token("admin", exp=None),
    "an expiry in a thousand years": lambda: token("admin", exp=int(time.time()) + 10**11),
    "not yet valid": lambda: token("admin", nbf=int(time.time()) + 600),
    "the name of everybody": lambda: token("*"),
    "no name": lambda: token(""),
    "a list for a name": lambda: token("admin", sub=["admin"]),
    "cut off": lambda: token("admin")[:-8],
    "a million": lambda: "a" * 60_000,
}


def bearer_message(text: str, authzid: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {text}\x01\x01".encode()


@pytest.mark.parametrize("flaw", FORGERIES)
def test_a_forged_token_gets_nobody_in(node: SecureNode, stranger: Client, flaw: str) -> None:
    answer = stranger.try_login("OAUTHBEARER", bearer_message(FORGERIES[flaw]()))
    assert answer.error_code == 0
    assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}
    assert stranger.ask(SaslAuthenticateRequest(b"\x01"), 2).error_code == SASL_FAILED
    assert stranger.is_closed()


def test_after_a_refused_token_nothing_is_served(stranger: Client) -> None:
    stranger.try_login("OAUTHBEARER", bearer_message(FORGERIES["alg=none"]()))
    stranger.send(MetadataRequest(topics=None))
    assert stranger.is_closed()


def test_a_good_token_gets_in(issuer: Issuer, stranger: Client) -> None:
    answer = stranger.try_login("OAUTHBEARER", bearer_message(token("somebody")))
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
    assert 0 < answer.session_lifetime_ms <= 600_000


def test_who_came_with_an_api_token_cannot_make_himself_a_stronger_one(
    node: SecureNode, stranger: Client
) -> None:
    wanted = {"user": "admin", "roles": ["read-only"], "lifetime_ms": 60_000}
    made = httpx.post(f"http://{node.http}/v1/tokens", json=wanted, timeout=10)
    assert made.is_success, made.text
    answer = stranger.try_login("OAUTHBEARER", bearer_message(made.json()["token"]))
    assert answer.auth_bytes == b""
    assert 0 < answer.session_lifetime_ms <= 60_000
    assert 31 in codes(stranger.ask(*requests.acl()))
    for asked in (
        CreateDelegationTokenRequest(max_lifetime_ms=-1, renewers=[]),
        DescribeDelegationTokenRequest(owners=None),
    ):
        assert stranger.ask(asked).error_code == 64


def test_a_login_repeated_with_a_weaker_token_is_as_weak_as_that(
    node: SecureNode, stranger: Client
) -> None:
    with node.client() as admin:
        admin.ask(*requests.create_topic("weaker"))
        assert codes(admin.ask(*requests.produce("weaker"))) == {0}
    for roles, may in ((["producer", "consumer"], True), ([], False)):
        wanted = {"user": "admin", "roles": roles}
        made = httpx.post(f"http://{node.http}/v1/tokens", json=wanted, timeout=10).json()
        answer = stranger.try_login("OAUTHBEARER", bearer_message(made["token"]))
        assert answer.auth_bytes == b""
        for _ in range(3):  # the first is decoded, the others are recognised by their bytes
            assert (codes(stranger.ask(*requests.produce("weaker"))) == {0}) == may
            assert (29 not in codes(stranger.ask(*requests.fetch("weaker")))) == may


def test_who_came_with_an_api_token_cannot_end_the_others_of_its_owner(node: SecureNode) -> None:
    tokens = f"http://{node.http}/v1/tokens"
    made = [
        httpx.post(tokens, json={"user": "admin", "roles": roles}, timeout=10).json()
        for roles in (["read-only"], None)
    ]
    header = {"authorization": f"Bearer {made[0]['token']}"}
    refused = httpx.delete(f"{tokens}/{made[1]['id']}", headers=header, timeout=10)
    assert refused.status_code == 403


def test_ssrf_a_token_cannot_name_where_its_keys_are(issuer: Issuer, stranger: Client) -> None:
    evil = f"{issuer.address}/evil"
    made = signed_by(STRANGE_KEY, kid="strange", jku=evil, x5u=evil)
    stranger.try_login("OAUTHBEARER", bearer_message(made))
    assert set(issuer.asked) <= {"/keys"}


def test_unknown_keys_do_not_make_the_node_ask_the_issuer_again_and_again(
    node: SecureNode, issuer: Issuer
) -> None:
    before = len(issuer.asked)
    for _ in range(5):
        with Client(node.address("SASL_PLAINTEXT")) as client:
            client.try_login("OAUTHBEARER", bearer_message(FORGERIES["unknown key"]()))
    assert len(issuer.asked) <= before + 1


def test_what_a_token_granted_ends_with_it(node: SecureNode, stranger: Client) -> None:
    made = token("brief", exp=int(time.time()) + 2)
    answer = stranger.try_login("OAUTHBEARER", bearer_message(made))
    assert 0 < answer.session_lifetime_ms <= 2_000
    stranger.ask(MetadataRequest(topics=[]))
    time.sleep(answer.session_lifetime_ms / 1000 + 0.1)
    stranger.send(MetadataRequest(topics=[]))
    assert stranger.is_closed()


def test_a_login_is_repeated_in_time_by_the_same_user_only(
    node: SecureNode, stranger: Client
) -> None:
    stranger.try_login("OAUTHBEARER", bearer_message(token("again", exp=int(time.time()) + 2)))
    answer = stranger.try_login("OAUTHBEARER", bearer_message(token("again")))
    assert answer.session_lifetime_ms > 100_000
    time.sleep(2.1)
    stranger.ask(MetadataRequest(topics=[]))
    answer = stranger.try_login("OAUTHBEARER", bearer_message(token("other")))
    assert answer.error_code == SASL_FAILED
    assert stranger.is_closed()


def test_groups_of_a_token_give_the_rights_of_groups_and_of_nobody_else(node: SecureNode) -> None:
    topic = "of-the-team"
    allow = rule("x", Operation.WRITE, (ResourceType.TOPIC, topic))
    with node.client() as admin:
        admin.ask(*requests.create_topic(topic))
        admin.allow(replace(allow, principal="Group:team"))
    claims: dict[str, tuple[dict[str, object], bool]] = {
        "in the group": ({"groups": ["other", "team"]}, True),
        "in another group": ({"groups": ["teams", "TEAM", "Group:team"]}, False),
        "in no group": ({}, False),
        "a text where a list should be": ({"groups": "team"}, False),
        "a list in a list": ({"groups": [["team"]]}, False),
        "named like the group": ({"sub": "team"}, False),
        "named like the principal": ({"sub": "Group:team"}, False),
    }
    for what, (said, may) in claims.items():
        with Client(node.address("SASL_PLAINTEXT")) as client:
            answer = client.try_login("OAUTHBEARER", bearer_message(token("member", **said)))
            assert answer.auth_bytes == b""
            assert (codes(client.ask(*requests.produce(topic))) == {0}) == may, what


# Other people's names


def test_impersonation_an_authzid_in_a_token_login_is_refused(stranger: Client) -> None:
    stranger.try_login("OAUTHBEARER", bearer_message(token("somebody"), "a=root"))
    assert stranger.ask(SaslAuthenticateRequest(b"\x01"), 2).error_code == SASL_FAILED


@pytest.mark.parametrize("mechanism", scram.ALGORITHMS)
@pytest.mark.parametrize(
    "opening",
    ["n,a=root,n=honest,r=abc", "n,a=root,n=root,n=honest,r=abc", "p=tls-unique,,n=a,r=b"],
)
def test_impersonation_an_authzid_in_scram_is_refused(
    node: SecureNode, stranger: Client, mechanism: str, opening: str
) -> None:
    node.make_user("honest")
    assert stranger.try_login(mechanism, opening.encode()).error_code == SASL_FAILED
    assert stranger.is_closed()


def test_impersonation_a_client_cannot_name_itself_into_a_principal(node: SecureNode) -> None:
    node.make_user("plain")
    with node.login("plain", client_id="User:root") as client:
        assert 31 in codes(client.ask(*requests.acl()))


@pytest.mark.parametrize("name", ["*", "", "a\0b", "line\nbreak", "x" * 300])
def test_a_name_that_could_be_taken_for_something_else_is_not_given(
    node: SecureNode, name: str
) -> None:
    with node.client() as admin:
        [result] = admin.ask(requests.scram_upserts(name, "p")).results
    assert result.error_code != 0


def test_pattern_injection_a_user_named_like_a_pattern_sees_his_own_topics_only(
    node: SecureNode,
) -> None:
    with node.client() as admin:
        for topic in ("home.ann.a", "home.bob.b"):
            admin.ask(*requests.create_topic(topic))
        mine = (ResourceType.TOPIC, "home.{user}.*")
        admin.allow(rule("*", Operation.READ, mine, pattern=PatternType.GLOB))
    for name, seen in {"ann": {"home.ann.a"}, "a*": set(), "?ob": set(), "{user}": set()}.items():
        node.make_user(name)
        with node.login(name) as client:
            shown = {topic.name for topic in client.ask(MetadataRequest(topics=None)).topics}
            assert {each for each in shown if each.startswith("home.")} == seen
            for topic in {"home.ann.a", "home.bob.b"} - seen:
                assert 29 in codes(client.ask(*requests.fetch(topic)))


def test_a_fetch_session_of_somebody_else_shows_nothing(node: SecureNode) -> None:
    topic = "session-secret"
    node.make_user("keeper", rule("keeper", Operation.READ, (ResourceType.TOPIC, topic)))
    node.make_user("peeper")
    with node.client() as admin:
        admin.ask(*requests.create_topic(topic))
        assert codes(admin.ask(*requests.produce(topic))) == {0}
    with node.login("keeper") as keeper, node.login("peeper") as peeper:
        request, version = requests.fetch(topic)
        assert isinstance(request, FetchRequest)
        request.session_epoch = 0
        opened = keeper.ask(request, version)
        assert opened.session_id > 0
        stolen = FetchRequest(
            session_id=opened.session_id, session_epoch=1, max_bytes=1_000_000, topics=[]
        )
        answer = peeper.ask(stolen, version)
        assert 29 in codes(answer)
        for answered in answer.responses:
            assert all(not bytes(each.records or b"") for each in answered.partitions)


def test_a_fetch_that_waits_does_not_show_what_may_no_longer_be_read(node: SecureNode) -> None:
    topic = (ResourceType.TOPIC, "revoked")
    node.make_user("waiter", rule("waiter", Operation.READ, topic))
    with node.client() as admin, node.login("waiter") as waiter:
        admin.ask(*requests.create_topic("revoked"))
        request, version = requests.fetch("revoked")
        assert isinstance(request, FetchRequest)
        request.max_wait_ms, request.min_bytes = 10_000, 1
        key, version = waiter.send(request, version)
        time.sleep(0.2)
        admin.allow(rule("waiter", Operation.READ, topic, deny=True))
        assert codes(admin.ask(*requests.produce("revoked"))) == {0}
        frame = waiter.receive()
        _, body = codec.decode_response_header(key, version, frame, 0, len(frame))
        answer = codec.decode_response(key, version, frame, body, len(frame))
        assert 29 in codes(answer)
        for answered in answer.responses:
            assert all(not bytes(each.records or b"") for each in answered.partitions)


def test_asking_about_a_topic_does_not_create_it_without_the_right(node: SecureNode) -> None:
    every = (ResourceType.TOPIC, "*")
    node.make_user("asker", rule("asker", Operation.DESCRIBE, every))
    node.make_user("writer", rule("writer", Operation.WRITE, every))
    asked = MetadataRequest([MetadataRequestTopic(name="conjured")])
    asked.allow_auto_topic_creation = True
    for name in ("asker", "writer"):
        with node.login(name) as client:
            assert codes(client.ask(asked, 11)) & {3, 29}
            client.ask(*requests.produce("conjured"))
    with node.client() as admin:
        names = {topic.name for topic in admin.ask(MetadataRequest(topics=None)).topics}
    assert "conjured" not in names


# Guessing and waiting


def scram_answer(mechanism: str, user: str, password: str, client: Client) -> int:
    """A whole exchange; the last error code."""
    bare = f"n={user},r=abc"
    first = client.try_login(mechanism, f"n,,{bare}".encode())
    if first.error_code:
        return int(first.error_code)
    told = bytes(first.auth_bytes).decode()
    parts = dict(each.split("=", 1) for each in told.split(","))
    salt, iterations = base64.b64decode(parts["s"]), int(parts["i"])
    salted = scram.salted_password(mechanism, password, salt, iterations)
    key = scram.client_key(mechanism, salted)
    without_proof = f"c=biws,r={parts['r']}"
    said = f"{bare},{told},{without_proof}".encode()
    signature = scram.keyed(mechanism, scram.digest(mechanism, key), said)
    proof = base64.b64encode(scram.exclusive_or(key, signature)).decode()
    final = SaslAuthenticateRequest(f"{without_proof},p={proof}".encode())
    return int(client.ask(final, 2).error_code)


def test_repeated_failures_of_scram_lock_the_pair_until_the_lock_opens(node: SecureNode) -> None:
    node.make_user("guessed")

    def attempt(password: str) -> int:
        with Client(node.address("SASL_PLAINTEXT")) as client:
            return scram_answer("SCRAM-SHA-256", "guessed", password, client)

    assert attempt(USER_PASSWORD) == 0
    for _ in range(5):
        assert attempt("wrong") == SASL_FAILED
    assert attempt(USER_PASSWORD) == SASL_FAILED
    refused = [line for line in audit(node) if line["user"] == "guessed"]
    assert "locked for" in refused[-1]["reason"]
    time.sleep(1.1)
    assert attempt(USER_PASSWORD) == 0


def test_a_login_takes_only_so_long(node: SecureNode) -> None:
    clients = [Client(node.address(kind)) for kind in ("SASL_PLAINTEXT", "SASL_PLAINTEXT")]
    start = time.monotonic()
    try:
        clients[1].ask(SaslHandshakeRequest("PLAIN"), 1)
        while time.monotonic() - start < LOGIN_TIMEOUT_MS / 1000 - 0.3:
            clients[1].ask(ApiVersionsRequest(), 3)  # keeping busy does not help
            time.sleep(0.1)
        for client in clients:
            client.socket.settimeout(3)
            assert client.is_closed()
    finally:
        for client in clients:
            client.socket.close()


def test_counts_before_login_do_not_multiply_into_memory(node: SecureNode) -> None:
    for body in (b"\xff\xff\xff\xff\x0f" * 4, b"\x02a\x02b" + b"\xff\xff\xff\xff\x07"):
        with Client(node.address("SASL_PLAINTEXT")) as client:
            head = (18).to_bytes(2, "big") + (4).to_bytes(2, "big") + bytes(4) + b"\0\1x\0"
            frame = head + body
            client.socket.sendall(len(frame).to_bytes(4, "big") + frame)
            assert client.is_closed()


# What is written down


def test_every_login_refusal_and_change_is_one_line_of_json(node: SecureNode) -> None:
    node.make_user("noted")
    with Client(node.address("SASL_PLAINTEXT")) as client:
        client.try_login("PLAIN", b"\0noted\0not-this-one")
    with node.login("noted") as client:
        client.ask(*requests.acl())
    lines = [line for line in audit(node) if "noted" in json.dumps(line)]
    assert all(line["time"].endswith("Z") for line in lines)
    short = [{key: line[key] for key in line if key not in ("time", "address")} for line in lines]
    changed = {"event": "change", "outcome": "done", "user": "User:ANONYMOUS"}
    assert short == [
        changed | {"what": "credential changed", "subject": "noted"},
        {"event": "login", "outcome": "refused", "user": "noted", "method": "PLAIN",
         "reason": "wrong password"},
        {"event": "login", "outcome": "granted", "user": "User:noted", "method": "PLAIN"},
        {"event": "access", "outcome": "refused", "user": "User:noted", "operation": "ALTER",
         "resource": "CLUSTER", "name": "kafka-cluster"},
    ]  # fmt: skip
    assert {line["address"] for line in lines} == {"127.0.0.1"}


def test_text_of_a_client_cannot_forge_a_line_of_the_audit(node: SecureNode) -> None:
    evil = 'x"}\n{"event":"login","outcome":"granted","user":"User:root"}'
    with Client(node.address("SASL_PLAINTEXT")) as client:
        client.try_login("PLAIN", f"\0{evil}\0p".encode())
    last = audit(node)[-1]
    assert (last["outcome"], last["user"]) == ("refused", evil)


def test_no_secret_is_in_the_log_the_audit_or_the_settings(
    node: SecureNode, stranger: Client
) -> None:
    made = token("secretive")
    stranger.try_login("OAUTHBEARER", bearer_message(made))
    with Client(node.address("SASL_PLAINTEXT")) as client:
        client.try_login("PLAIN", b"\0secretive\0do-not-write-this")
    with node.client() as admin:
        said = repr(admin.ask(*requests.describe_configs(4, "1")))
    written = said + node.log_text() + (node.data_dir / "audit.jsonl").read_text()
    wanted = (made, made.rsplit(".", 1)[1], "do-not-write-this", ADMIN_PASSWORD, USER_PASSWORD)
    for secret in wanted:
        assert secret not in written
    assert "secretive" in written


def test_the_data_folder_holds_no_password(node: SecureNode) -> None:
    node.make_user("kept")
    for path in Path(node.data_dir).rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert USER_PASSWORD.encode() not in data
            assert ADMIN_PASSWORD.encode() not in data
            assert hashlib.sha256(USER_PASSWORD.encode()).digest() not in data
    assert (node.data_dir / "audit.jsonl").stat().st_mode & 0o077 == 0
