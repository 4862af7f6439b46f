"""HTTP that asks who is there: logins, what they are worth, and the administration of rights."""

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import httpx
import pytest
from tests.integration.security import requests
from tests.integration.security.issuer import AUDIENCE, ISSUER, KEY, token
from tests.integration.security.kit import (
    ADMIN_PASSWORD,
    USER_PASSWORD,
    Client,
    SecureNode,
    codes,
    rule,
)
from tests.integration.security.web import ADMIN, audit, bearer, browsing, known, web_node

from mainstem.security.authorisation.acl import Operation, ResourceType

TOPIC = (ResourceType.TOPIC, "web")
O = Operation  # noqa: E741 - rules are read in columns


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node with a topic."""
    with web_node(tmp_path_factory.mktemp("http")) as made:
        with made.client() as admin:
            admin.ask(*requests.create_topic("web"))
        yield made


@pytest.fixture
def web(node: SecureNode) -> Iterator[httpx.Client]:
    with browsing(node) as client:
        yield client


def test_no_credentials_are_answered_with_a_challenge(web: httpx.Client) -> None:
    for path in ("/", "/v1/nothing", "/health/nothing", "/healthy", "/health/../v1/topics"):
        answer = web.get(path)
        assert answer.status_code == 401, path
        assert "Basic" in answer.headers["www-authenticate"]


@pytest.mark.parametrize(
    "header",
    [
        "", "Basic", "Basic !!!", "Basic YQ==", "Basic OnB3", "Bearer", "Bearer x.y.z",
        "Negotiate x", "Bearer mst_abc_def", "bearer", "Basic " + "A" * 10_000,
    ],
)  # fmt: skip
def test_wrong_credentials_are_refused(web: httpx.Client, header: str) -> None:
    assert web.get("/v1/topics", headers={"authorization": header}).status_code == 401


def test_a_wrong_password_is_refused_and_a_right_one_is_not(web: httpx.Client) -> None:
    assert web.get("/v1/topics", auth=("admin", "wrong")).status_code == 401
    assert web.get("/v1/topics", auth=ADMIN).status_code == 200
    assert web.get("/v1/topics", auth=ADMIN).status_code == 200


def test_a_bearer_token_says_who_it_is(node: SecureNode, web: httpx.Client) -> None:
    assert web.get("/v1/topics", headers=bearer(token("bea"))).json() == []
    with node.client() as admin:
        admin.allow(rule("bea", O.DESCRIBE, TOPIC))
    [seen] = web.get("/v1/topics", headers=bearer(token("bea"))).json()
    assert seen["name"] == "web"


def by_hand(header: dict[str, object], signature: bytes = b"") -> str:
    """A token with any header: libraries refuse to make the bad ones."""
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "admin", "iat": now, "exp": now + 600}
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


def with_public_key_as_secret() -> str:
    """The classic: an HMAC under the key that everybody may know."""
    head, body, _ = by_hand({"alg": "HS256", "kid": "one"}).split(".")
    signature = hmac.digest(KEY.as_pem(private=False), f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def cut(text: str) -> str:
    return text.rpartition(".")[0] + "."


BAD_TOKENS: dict[str, Callable[[], str]] = {
    "alg=none": lambda: by_hand({"alg": "none"}),
    "alg=None": lambda: by_hand({"alg": "None", "kid": "one"}),
    "no algorithm": lambda: by_hand({"kid": "one"}, b"x"),
    "HMAC under the public key": with_public_key_as_secret,
    "unknown key": lambda: by_hand({"alg": "RS256", "kid": "two"}, b"x" * 256),
    "a key that it brings along": lambda: by_hand(
        {"alg": "RS256", "jwk": KEY.as_dict(private=False)}, b"x" * 256
    ),
    "no signature": lambda: cut(token("admin")),
    "another's signature": lambda: cut(token("admin")) + token("eve").rpartition(".")[2],
    "wrong issuer": lambda: token("admin", iss="https://evil.test"),
    "wrong audience": lambda: token("admin", aud="somebody-else"),
    "no audience": lambda: token("admin", aud=[]),
    "expired": lambda: token("admin", exp=int(time.time()) - 600),
    "expiry is no number": lambda: token("admin", exp="tomorrow"),
    "not yet valid": lambda: token("admin", nbf=int(time.time()) + 600),
    "no user": lambda: token(""),
    "a user that is no text": lambda: token("admin", sub=["admin"]),
    "enormous": lambda: token("admin", padding="x" * 30_000),
}


@pytest.mark.parametrize("flaw", BAD_TOKENS)
def test_a_bad_bearer_token_is_refused(web: httpx.Client, flaw: str) -> None:
    answer = web.get("/v1/topics", headers=bearer(BAD_TOKENS[flaw]()))
    assert answer.status_code == 401
    assert answer.json()["cause"] == "the login failed"  # and nothing about why


def test_users_are_made_and_log_in_everywhere(node: SecureNode, web: httpx.Client) -> None:
    made = web.put("/v1/users/zoe", json={"password": "first"}, auth=ADMIN)
    assert made.status_code == 201, made.text
    assert set(made.json()["mechanisms"]) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert web.get("/v1/topics", auth=("zoe", "first")).status_code == 200
    node.login("zoe", "first").socket.close()
    changed = web.put("/v1/users/zoe", json={"password": "second"}, auth=ADMIN)
    assert changed.status_code == 200
    assert web.get("/v1/topics", auth=("zoe", "first")).status_code == 401
    assert web.get("/v1/topics", auth=("zoe", "second")).status_code == 200
    assert "zoe" in [user["name"] for user in web.get("/v1/users", auth=ADMIN).json()]
    assert web.delete("/v1/users/zoe", auth=ADMIN).status_code == 200
    assert web.get("/v1/topics", auth=("zoe", "second")).status_code == 401
    assert web.delete("/v1/users/zoe", auth=ADMIN).status_code == 404


def test_roles_are_made_given_and_taken(web: httpx.Client) -> None:
    web.put("/v1/users/rolf", json={"password": "p"}, auth=ADMIN)
    rolf = ("rolf", "p")
    assert web.get("/v1/topics/web", auth=rolf).status_code == 403
    wanted = {
        "rules": [{"resource": "topic", "operation": "read", "name": "w*", "pattern": "glob"}]
    }
    assert web.put("/v1/roles/web-reader", json=wanted, auth=ADMIN).status_code == 201
    assert web.put("/v1/roles/web-reader", json=wanted, auth=ADMIN).status_code == 200
    assert web.put("/v1/roles/web-reader/members/rolf", auth=ADMIN).status_code == 200
    assert web.get("/v1/topics/web", auth=rolf).status_code == 200
    assert web.get("/v1/topics/web/messages", auth=rolf).status_code == 200
    assert web.post("/v1/topics/web/messages", json={"value": "x"}, auth=rolf).status_code == 403
    [role] = [r for r in web.get("/v1/roles", auth=ADMIN).json() if r["name"] == "web-reader"]
    assert role["members"] == ["User:rolf"]
    assert web.delete("/v1/roles/web-reader/members/rolf", auth=ADMIN).status_code == 200
    assert web.get("/v1/topics/web", auth=rolf).status_code == 403
    assert web.delete("/v1/roles/web-reader", auth=ADMIN).status_code == 200
    assert web.put("/v1/roles/admin", json={"rules": []}, auth=ADMIN).status_code == 403
    assert web.put("/v1/roles/x", json={"rules": [{"resource": "y", "operation": "read"}]},
                   auth=ADMIN).status_code == 400  # fmt: skip


def test_an_api_token_does_what_its_owner_may_until_it_is_deleted(
    node: SecureNode, web: httpx.Client
) -> None:
    node.make_user("tom", rule("tom", O.READ, TOPIC))
    made = web.post("/v1/tokens", json={"name": "ci"}, auth=("tom", USER_PASSWORD))
    assert made.status_code == 201, made.text
    text, token_id = made.json()["token"], made.json()["id"]
    assert web.get("/v1/topics/web", headers=bearer(text)).status_code == 200
    assert web.delete("/v1/topics/web", headers=bearer(text)).status_code == 403
    listed = web.get("/v1/tokens", auth=("tom", USER_PASSWORD)).json()
    assert [each["id"] for each in listed] == [token_id]
    assert text not in json.dumps(listed)
    assert web.post("/v1/tokens", json={}, headers=bearer(text)).status_code == 403
    node.make_user("other")
    assert web.get("/v1/tokens", auth=("other", USER_PASSWORD)).json() == []
    gone = web.delete(f"/v1/tokens/{token_id}", auth=("other", USER_PASSWORD))
    assert gone.status_code == 403
    assert web.delete(f"/v1/tokens/{token_id}", auth=("tom", USER_PASSWORD)).status_code == 200
    assert web.get("/v1/topics/web", headers=bearer(text)).status_code == 401


def test_an_api_token_may_be_limited_to_roles_and_in_time(web: httpx.Client) -> None:
    wanted = {"name": "reader", "roles": ["read-only"], "user": "admin", "lifetime_ms": 1_500}
    text = web.post("/v1/tokens", json=wanted, auth=ADMIN).json()["token"]
    assert web.get("/v1/topics/web", headers=bearer(text)).status_code == 200
    assert web.delete("/v1/topics/web", headers=bearer(text)).status_code == 403
    assert web.put("/v1/users/eve", json={"password": "p"}, headers=bearer(text)).status_code == 403
    time.sleep(1.6)
    assert web.get("/v1/topics/web", headers=bearer(text)).status_code == 401
    for wrong in ({"roles": ["nonsense"]}, {"lifetime_ms": 0}, {"lifetime_ms": -5}):
        assert web.post("/v1/tokens", json=wrong, auth=ADMIN).status_code in (400, 404)


def test_who_asks_too_often_is_told_to_wait(node: SecureNode, web: httpx.Client) -> None:
    node.make_user("hasty")
    request, _ = requests.quota()
    request.entries[0].entity[0].entity_name = "hasty"  # type: ignore[attr-defined]
    request.entries[0].ops[0].value = 2.0  # type: ignore[attr-defined]
    with node.client() as admin:
        assert codes(admin.ask(request)) == {0}
    answers = [web.get("/v1/topics", auth=("hasty", USER_PASSWORD)) for _ in range(6)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert int(refused[0].headers["retry-after"]) >= 1
    time.sleep(1.2)
    assert web.get("/v1/topics", auth=("hasty", USER_PASSWORD)).status_code == 200


def test_who_makes_and_deletes_partitions_too_fast_is_told_to_wait(web: httpx.Client) -> None:
    """As a Kafka client would be (KIP-599); whatever takes no partitions goes on."""
    web.put("/v1/users/maker", json={"password": "p"}, auth=ADMIN)
    web.put("/v1/roles/admin/members/maker", auth=ADMIN)
    limits = {"controller_mutation_rate": 4}
    web.put("/v1/quotas", json={"entity": {"user": "maker"}, "limits": limits}, auth=ADMIN)
    maker = ("maker", "p")
    assert web.put("/v1/topics/fast", json={"partitions": 10}, auth=maker).status_code == 201
    for method, path, body in (
        ("PUT", "/v1/topics/faster", {}),
        ("POST", "/v1/topics", {"name": "faster"}),
        ("POST", "/v1/topics/faster/messages", {"value": "x"}),
        ("PUT", "/v1/topics/fast", {"partitions": 11}),
        ("DELETE", "/v1/topics/fast", None),
    ):
        refused = web.request(method, path, json=body, auth=maker)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
    assert web.get("/v1/topics/fast", auth=maker).status_code == 200
    assert web.put("/v1/topics/fast", json={}, auth=maker).status_code == 200
    time.sleep(1.6)
    assert web.delete("/v1/topics/fast", auth=maker).status_code == 200
    assert web.get("/v1/topics/faster", auth=ADMIN).status_code == 404


def test_rules_are_added_found_and_removed(web: httpx.Client) -> None:
    web.put("/v1/users/ruth", json={"password": "p"}, auth=ADMIN)
    ruth = ("ruth", "p")
    wanted = {"principal": "ruth", "resource": "topic", "operation": "read", "name": "we",
              "pattern": "prefixed"}  # fmt: skip
    denied = {**wanted, "permission": "deny", "pattern": "literal", "name": "web"}
    made = web.post("/v1/acls", json={"rules": [wanted]}, auth=ADMIN)
    assert made.status_code == 201
    full = {**wanted, "principal": "User:ruth", "permission": "allow", "host": "*"}
    assert made.json() == [full]
    assert web.get("/v1/topics/web", auth=ruth).status_code == 200
    web.post("/v1/acls", json={"rules": [denied]}, auth=ADMIN)
    assert web.get("/v1/topics/web/messages", auth=ruth).status_code == 403
    concerning = web.get(
        "/v1/acls?resource=topic&name=web&pattern=match&principal=ruth", auth=ADMIN
    ).json()
    assert [each["permission"] for each in concerning] == ["allow", "deny"]
    gone = web.delete("/v1/acls?principal=ruth&permission=deny", auth=ADMIN).json()
    assert [each["name"] for each in gone["deleted"]] == ["web"]
    assert web.get("/v1/topics/web/messages", auth=ruth).status_code == 200
    assert web.get("/v1/acls?principal=User:ruth", auth=ADMIN).json() == [full]


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"rules": []},
        {"rules": [{"principal": "User:x", "resource": "topic", "operation": "commit_sins"}]},
        {"rules": [{"principal": "User:x", "resource": "any", "operation": "read"}]},
        {"rules": [{"principal": "User:x", "resource": "topic", "operation": "any"}]},
        {"rules": [{"principal": "", "resource": "topic", "operation": "read"}]},
        {"rules": [{"principal": "User:x", "resource": "topic", "operation": "read",
                    "pattern": "match"}]},
        {"rules": [{"principal": "User:x", "resource": "topic", "operation": "read", "x": 1}]},
        {"rules": [{"principal": "User:x", "resource": "group", "operation": "write"}]},
        {"rules": [{"principal": "User:x", "resource": "cluster", "operation": "alter",
                    "name": "other"}]},
    ],
)  # fmt: skip
def test_a_rule_that_makes_no_sense_is_refused_with_all_beside_it(
    web: httpx.Client, wrong: dict[str, list[object]]
) -> None:
    good = {"principal": "User:beside", "resource": "topic", "operation": "read"}
    body = {"rules": [good, *wrong["rules"]]} if wrong.get("rules") else wrong
    assert web.post("/v1/acls", json=body, auth=ADMIN).status_code == 400
    assert web.get("/v1/acls?principal=User:beside", auth=ADMIN).json() == []


def test_all_rules_are_removed_only_where_that_is_said(web: httpx.Client) -> None:
    before = web.get("/v1/acls", auth=ADMIN).json()
    assert web.delete("/v1/acls", auth=ADMIN).status_code == 400
    assert web.delete("/v1/acls?resource=nothing", auth=ADMIN).status_code == 400
    assert web.delete("/v1/acls?principle=x", auth=ADMIN).status_code == 400
    assert web.get("/v1/acls", auth=ADMIN).json() == before


def test_quotas_are_set_changed_and_removed(web: httpx.Client) -> None:
    def put(entity: Mapping[str, object], **limits: float | None) -> httpx.Response:
        return web.put("/v1/quotas", json={"entity": entity, "limits": limits}, auth=ADMIN)

    both = {"user": "quentin", "client_id": None}
    assert put({"user": "quentin"}, producer_byte_rate=5e6).json()["limits"] == {
        "producer_byte_rate": 5e6
    }
    put({"user": "quentin"}, consumer_byte_rate=6e6)
    put(both, request_rate=70)
    put({"ip": "10.9.8.7"}, connection_creation_rate=8)
    found = web.get("/v1/quotas?user=quentin", auth=ADMIN).json()
    assert sorted(found, key=str) == sorted(
        [
            {"entity": {"user": "quentin"},
             "limits": {"consumer_byte_rate": 6e6, "producer_byte_rate": 5e6}},
            {"entity": both, "limits": {"request_rate": 70.0}},
        ],
        key=str,
    )  # fmt: skip
    assert len(web.get("/v1/quotas?user=quentin&default=client_id", auth=ADMIN).json()) == 1
    assert put({"user": "quentin"}, consumer_byte_rate=None).json()["limits"] == {
        "producer_byte_rate": 5e6
    }
    assert web.delete("/v1/quotas?user=quentin&default=client_id", auth=ADMIN).status_code == 200
    assert web.delete("/v1/quotas?user=quentin", auth=ADMIN).status_code == 200
    assert web.delete("/v1/quotas?user=quentin", auth=ADMIN).status_code == 404
    assert web.get("/v1/quotas?user=quentin", auth=ADMIN).json() == []
    assert len(web.get("/v1/quotas?ip=10.9.8.7", auth=ADMIN).json()) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"entity": {}, "limits": {"request_rate": 1}},
        {"entity": {"user": "q"}, "limits": {}},
        {"entity": {"user": "q"}, "limits": {"request_rate": 0}},
        {"entity": {"user": "q"}, "limits": {"request_rate": -1}},
        {"entity": {"user": "q"}, "limits": {"wishes": 3}},
        {"entity": {"user": "q"}, "limits": {"connection_creation_rate": 3}},
        {"entity": {"user": "q", "ip": "10.0.0.1"}, "limits": {"request_rate": 1}},
        {"entity": {"user": ""}, "limits": {"request_rate": 1}},
        {"entity": {"group": "q"}, "limits": {"request_rate": 1}},
        {"entity": {"user": "q"}},
    ],
)
def test_a_quota_that_makes_no_sense_is_refused(
    web: httpx.Client, wrong: dict[str, object]
) -> None:
    assert web.put("/v1/quotas", json=wrong, auth=ADMIN).status_code == 400


def test_a_quota_is_removed_only_where_it_is_said_whose(web: httpx.Client) -> None:
    for query in ("", "?default=everybody", "?user=a&default=user", "?user=a&ip=b"):
        assert web.delete(f"/v1/quotas{query}", auth=ADMIN).status_code == 400, query


def test_one_user_role_and_token_are_shown_without_their_secrets(web: httpx.Client) -> None:
    web.put("/v1/users/hans%2Fpeter", json={"password": "s3cret"}, auth=ADMIN)
    web.put("/v1/roles/consumer/members/hans%2Fpeter", auth=ADMIN)
    user = web.get("/v1/users/hans%2Fpeter", auth=ADMIN).json()
    assert user == {
        "name": "hans/peter",
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "roles": ["consumer"],
    }
    assert web.get("/v1/users/nobody", auth=ADMIN).status_code == 404
    role = web.get("/v1/roles/consumer", auth=ADMIN).json()
    assert (role["built_in"], role["members"]) == (True, ["User:hans/peter"])
    assert web.get("/v1/roles/none", auth=ADMIN).status_code == 404
    made = web.post("/v1/tokens", json={"name": "t"}, auth=("hans/peter", "s3cret")).json()
    shown = web.get(f"/v1/tokens/{made['id']}", auth=("hans/peter", "s3cret"))
    assert shown.json() == {name: made[name] for name in made if name != "token"}
    assert web.get(f"/v1/tokens/{made['id']}", headers=bearer(token("bea"))).status_code == 404


def test_everybody_is_told_who_he_is(node: SecureNode, web: httpx.Client) -> None:
    web.put("/v1/users/mia", json={"password": "p"}, auth=ADMIN)
    web.put("/v1/roles/consumer/members/mia", auth=ADMIN)
    me = web.get("/v1/me", auth=("mia", "p")).json()
    assert (me["principal"], me["method"], me["roles"]) == ("User:mia", "PLAIN", ["consumer"])
    wanted = {"roles": ["read-only"], "lifetime_ms": 60_000}
    text = web.post("/v1/tokens", json=wanted, auth=("mia", "p")).json()["token"]
    by_token = web.get("/v1/me", headers=bearer(text)).json()
    assert (by_token["method"], by_token["only_roles"]) == ("token", ["read-only"])
    assert by_token["until_ms"] > time.time() * 1000
    assert web.get("/v1/me", headers=bearer(token("jo"))).json()["principal"] == "User:jo"
    with browsing(node, node.certificates.issue("cert")) as other:
        assert other.get("/v1/me").json()["principal"] == "User:cert"


def test_a_user_changes_his_own_password_by_showing_the_present_one(
    node: SecureNode, web: httpx.Client
) -> None:
    web.put("/v1/users/nina", json={"password": "old"}, auth=ADMIN)
    text = web.post("/v1/tokens", json={}, auth=("nina", "old")).json()["token"]

    def put(password: str, **login: Any) -> int:
        return web.put("/v1/me/password", json={"password": password}, **login).status_code

    assert put("new", headers=bearer(text)) == 403
    assert put("new", headers=bearer(token("nina"))) == 403
    with browsing(node, node.certificates.issue("nina")) as other:
        assert other.put("/v1/me/password", json={"password": "new"}).status_code == 403
    assert put("new", auth=("nina", "wrong")) == 401
    assert put("", auth=("nina", "old")) == 400
    assert put("new", auth=("nina", "old")) == 200
    assert web.get("/v1/me", auth=("nina", "old")).status_code == 401
    assert web.get("/v1/me", auth=("nina", "new")).status_code == 200


def test_a_role_of_a_group_does_not_make_the_group_a_user(web: httpx.Client) -> None:
    assert web.put("/v1/roles/consumer/members/Group:ops", auth=ADMIN).json() == {
        "principal": "Group:ops",
        "roles": ["consumer"],
    }
    names = [user["name"] for user in web.get("/v1/users", auth=ADMIN).json()]
    assert not [name for name in names if "ops" in name]


def test_repeated_failures_lock_a_user_out_over_http_and_over_kafka(
    node: SecureNode, web: httpx.Client
) -> None:
    node.make_user("forgetful")
    for attempt in range(5):
        assert web.get("/v1/topics", auth=("forgetful", f"{attempt}")).status_code == 401
    assert web.get("/v1/topics", auth=known("forgetful")).status_code == 401
    with node.client() as _, Client(node.address("SASL_PLAINTEXT")) as kafka:
        tried = kafka.try_login("PLAIN", f"\0forgetful\0{USER_PASSWORD}".encode())
        assert tried.error_code == 58
    assert web.get("/v1/topics", auth=ADMIN).status_code == 200  # others are not concerned
    time.sleep(1.2)
    assert web.get("/v1/topics", auth=known("forgetful")).status_code == 200
    lines = [line for line in audit(node) if line.get("user", "").endswith("forgetful")]
    refused = [line for line in lines if line["outcome"] == "refused"]
    assert [line["reason"] for line in refused[:4]] == ["wrong password"] * 4
    assert "locked for" in refused[4]["reason"]


def test_the_audit_has_one_line_for_each_login_of_a_connection(node: SecureNode) -> None:
    node.make_user("steady")
    other = node.certificates.issue("steady-cert")
    with browsing(node) as web:
        text = web.post("/v1/tokens", json={}, auth=known("steady")).json()["token"]
        for _ in range(5):
            assert web.get("/v1/topics", auth=known("steady")).status_code == 200
        for _ in range(3):
            assert web.get("/v1/topics", headers=bearer(text)).status_code == 200
        assert web.get("/v1/topics", auth=("steady", "wrong")).status_code == 401
    with browsing(node, other) as web:
        for _ in range(3):
            assert web.get("/v1/topics").status_code == 200
    lines = [line for line in audit(node) if "steady" in line.get("user", "")]
    logins = [line for line in lines if line["event"] == "login"]
    assert [(line["outcome"], line["user"], line["method"]) for line in logins] == [
        ("granted", "User:steady", "PLAIN"),
        ("granted", "User:steady", "token"),
        ("refused", "steady", "PLAIN"),
        ("granted", "User:steady-cert", "TLS"),
    ]
    assert {line["address"] for line in logins} == {"127.0.0.1"}


def test_refusals_and_changes_over_http_are_in_the_audit(
    node: SecureNode, web: httpx.Client
) -> None:
    node.make_user("curious")
    web.delete("/v1/topics/web", auth=known("curious"))
    web.put("/v1/quotas", json={"entity": {"user": "curious"}, "limits": {"request_rate": 9}},
            auth=ADMIN)  # fmt: skip
    lines = audit(node)
    assert {
        "event": "access", "outcome": "refused", "user": "User:curious", "address": "127.0.0.1",
        "operation": "DELETE", "resource": "TOPIC", "name": "web",
    }.items() <= [line for line in lines if line["event"] == "access"][-1].items()  # fmt: skip
    change = [line for line in lines if line["event"] == "change"][-1]
    assert (change["user"], change["what"]) == ("User:admin", "quota changed")


def test_no_secret_is_in_the_log_or_the_audit(node: SecureNode, web: httpx.Client) -> None:
    web.put("/v1/users/quiet", json={"password": "hush-hush"}, auth=ADMIN)
    web.get("/v1/topics", auth=("quiet", "hush-hush-wrong"))
    made = web.post("/v1/tokens", json={"user": "quiet"}, auth=ADMIN).json()["token"]
    web.get("/v1/topics", headers=bearer(made))
    written = node.log_text() + (node.data_dir / "audit.jsonl").read_text()
    assert "quiet" in written
    for secret in ("hush-hush", made, made.rsplit("_", 1)[1], ADMIN_PASSWORD, USER_PASSWORD):
        assert secret not in written
