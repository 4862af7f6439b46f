"""HTTP that asks who is there: passwords, tokens, rights on every route, quotas."""

import json
import ssl
import time
from collections.abc import Iterator

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey
from tests.integration.security import requests
from tests.integration.security.kit import (
    ADMIN_PASSWORD,
    CLUSTER,
    USER_PASSWORD,
    SecureNode,
    codes,
    rule,
)

from mainstem.security.acl import Operation, ResourceType

ISSUER = "https://issuer.test"
KEY = RSAKey.generate_key(2048, {"kid": "one"})
ADMIN = ("admin", ADMIN_PASSWORD)
TOPIC = (ResourceType.TOPIC, "web")
GROUP = (ResourceType.GROUP, "web-group")
O = Operation  # noqa: E741 - the table below is read in columns


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node that asks for a login on HTTPS, too."""
    folder = tmp_path_factory.mktemp("http")
    keys = folder / "keys.json"
    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    settings = {
        "http.tls": "true",
        "http.login": "true",
        "security.oauth_issuer": ISSUER,
        "security.oauth_audiences": "mainstem",
        "security.oauth_keys": keys,
    }
    flags = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    with SecureNode(folder, *flags) as made:
        with made.client() as admin:
            admin.ask(*requests.create_topic("web"))
        yield made


@pytest.fixture
def web(node: SecureNode) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=str(node.certificates.ca))
    with httpx.Client(base_url=f"https://{node.http}", verify=context, timeout=20) as client:
        yield client


def token(**claims: object) -> str:
    said = {"iss": ISSUER, "aud": "mainstem", "sub": "web", "exp": int(time.time()) + 600, **claims}
    return jwt.encode({"alg": "RS256", "kid": "one"}, said, KEY)


def bearer(text: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text}"}


def test_no_credentials_are_answered_with_a_challenge(web: httpx.Client) -> None:
    for path in ("/", "/v1/topics", "/v1/users", "/metrics", "/openapi.json", "/v1/nothing"):
        answer = web.get(path)
        assert answer.status_code == 401, path
        assert "Basic" in answer.headers["www-authenticate"]


def test_health_is_told_to_everybody(web: httpx.Client) -> None:
    for path in ("/health", "/health/live", "/health/ready"):
        assert web.get(path).status_code == 200


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


def test_a_bearer_token_says_who_it_is(web: httpx.Client) -> None:
    assert web.get("/v1/topics", headers=bearer(token())).json() == []
    body = token().split(".")[1]
    for bad in (
        token(aud="other"), token(iss="other"), token(exp=1), f"eyJhbGciOiJub25lIn0.{body}."
    ):  # fmt: skip
        assert web.get("/v1/topics", headers=bearer(bad)).status_code == 401


def test_users_are_made_and_log_in_everywhere(node: SecureNode, web: httpx.Client) -> None:
    made = web.put("/v1/users/zoe", json={"password": "first"}, auth=ADMIN)
    assert made.status_code == 200, made.text
    assert set(made.json()["mechanisms"]) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert web.get("/v1/topics", auth=("zoe", "first")).status_code == 200
    node.login("zoe", "first").socket.close()
    web.put("/v1/users/zoe", json={"password": "second"}, auth=ADMIN)
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


Row = tuple[str, str, object, list[tuple[Operation, tuple[ResourceType, str]]]]
MATRIX: list[Row] = [
    ("GET", "/v1/broker", None, [(O.DESCRIBE, CLUSTER)]),
    ("GET", "/metrics", None, [(O.DESCRIBE, CLUSTER)]),
    ("GET", "/metrics/json", None, [(O.DESCRIBE, CLUSTER)]),
    ("POST", "/v1/topics", {"name": "web-made"}, [(O.CREATE, (TOPIC[0], "web-made"))]),
    ("GET", "/v1/topics/web", None, [(O.DESCRIBE, TOPIC)]),
    ("PUT", "/v1/topics/web-put", {}, [(O.CREATE, (TOPIC[0], "web-put"))]),
    ("PUT", "/v1/topics/web", {"configs": {"retention.ms": 1000}},
     [(O.DESCRIBE, TOPIC), (O.ALTER_CONFIGS, TOPIC)]),
    ("PUT", "/v1/topics/web", {"partitions": 2}, [(O.DESCRIBE, TOPIC), (O.ALTER, TOPIC)]),
    ("GET", "/v1/topics/web/messages", None, [(O.READ, TOPIC)]),
    ("POST", "/v1/topics/web/messages", {"value": "x"}, [(O.WRITE, TOPIC)]),
    ("POST", "/v1/topics/web-auto/messages", {"value": "x"},
     [(O.WRITE, (TOPIC[0], "web-auto")), (O.CREATE, (TOPIC[0], "web-auto"))]),
    ("DELETE", "/v1/topics/web-gone", None, [(O.DELETE, (TOPIC[0], "web-gone"))]),
    ("GET", "/v1/groups/web-group", None, [(O.DESCRIBE, GROUP)]),
    ("DELETE", "/v1/groups/web-group", None, [(O.DELETE, GROUP)]),
    ("GET", "/v1/users", None, [(O.DESCRIBE, CLUSTER)]),
    ("PUT", "/v1/users/u", {"password": "p"}, [(O.ALTER, CLUSTER)]),
    ("DELETE", "/v1/users/absent", None, [(O.ALTER, CLUSTER)]),
    ("GET", "/v1/roles", None, [(O.DESCRIBE, CLUSTER)]),
    ("PUT", "/v1/roles/r", {"rules": []}, [(O.ALTER, CLUSTER)]),
    ("DELETE", "/v1/roles/absent", None, [(O.ALTER, CLUSTER)]),
    ("PUT", "/v1/roles/consumer/members/u", None, [(O.ALTER, CLUSTER)]),
    ("DELETE", "/v1/roles/consumer/members/absent", None, [(O.ALTER, CLUSTER)]),
    ("DELETE", "/v1/tokens/absent", None, [(O.ALTER, CLUSTER)]),
    ("POST", "/v1/tokens", {"user": "somebody"}, [(O.ALTER, CLUSTER)]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MATRIX)), ids=lambda n: " ".join(MATRIX[n][:2]))
def test_every_route_takes_its_rights(node: SecureNode, web: httpx.Client, number: int) -> None:
    method, path, body, needs = MATRIX[number]
    name = f"web-{number}"
    node.make_user(name)
    auth = (name, USER_PASSWORD)
    with node.client() as admin:
        for need in needs:
            assert web.request(method, path, json=body, auth=auth).status_code == 403
            admin.allow(rule(name, *need))
    assert web.request(method, path, json=body, auth=auth).status_code not in (401, 403)


def test_every_route_that_is_described_is_in_the_matrix(web: httpx.Client) -> None:
    paths = web.get("/openapi.json", auth=ADMIN).json()["paths"]
    described = {(method.upper(), path) for path, item in paths.items() for method in item
                 if method != "parameters"}  # fmt: skip
    names = dict.fromkeys(
        ("web", "web-put", "web-gone", "web-auto", "r", "consumer", "absent"), "{name}"
    ) | {"web-group": "{id}"}

    def template(path: str) -> str:
        head, *rest = path.strip("/").split("/")
        if rest and rest[0] == "roles" and "members" in rest:
            return "/v1/roles/{name}/members/{principal}"
        if rest[:1] == ["tokens"] and len(rest) > 1:
            return "/v1/tokens/{id}"
        if rest[:1] == ["users"] and len(rest) > 1:
            return "/v1/users/{name}"
        return "/" + "/".join([head, *(names.get(part, part) for part in rest)])

    covered = {(method, template(path)) for method, path, _, _ in MATRIX}
    # Lists are filtered, health is for everybody, one's own tokens are one's own.
    other = {("GET", path) for path in (
        "/", "/v1/topics", "/v1/groups", "/v1/tokens", "/health", "/health/live", "/health/ready",
        "/openapi.json",
    )}  # fmt: skip
    assert described - covered == other


def test_lists_show_what_the_asker_may_see(node: SecureNode, web: httpx.Client) -> None:
    node.make_user("looker", rule("looker", O.DESCRIBE, TOPIC))
    seen = web.get("/v1/topics", auth=("looker", USER_PASSWORD)).json()
    assert [topic["name"] for topic in seen] == ["web"]
    assert web.get("/v1/groups", auth=("looker", USER_PASSWORD)).json() == []


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


def test_no_secret_is_in_the_log_or_the_audit(node: SecureNode, web: httpx.Client) -> None:
    web.put("/v1/users/quiet", json={"password": "hush-hush"}, auth=ADMIN)
    web.get("/v1/topics", auth=("quiet", "hush-hush-wrong"))
    made = web.post("/v1/tokens", json={"user": "quiet"}, auth=ADMIN).json()["token"]
    web.get("/v1/topics", headers=bearer(made))
    written = node.log_text() + (node.data_dir / "audit.jsonl").read_text()
    assert "quiet" in written
    for secret in ("hush-hush", made, made.rsplit("_", 1)[1], ADMIN_PASSWORD, USER_PASSWORD):
        assert secret not in written
