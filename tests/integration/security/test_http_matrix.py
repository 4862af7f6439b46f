"""Every operation over HTTP, asked without a login, with a wrong one, without and with the right.

The table is held against the table of routes: an operation that is served and has no row fails.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest
from tests.integration.security import requests
from tests.integration.security.kit import CLUSTER, SecureNode, codes, rule
from tests.integration.security.web import ADMIN, bearer, browsing, known, web_node

from mainstem.protocols.rest.access import OPEN_TO_ALL
from mainstem.protocols.rest.routing.routes import ADDRESSES
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

O = Operation  # noqa: E741 - the table below is read in columns
OPENAPI = ("GET", "/openapi.json")
GROUP = (ResourceType.GROUP, "matrix-group")
GONE_GROUP = (ResourceType.GROUP, "matrix-gone")
Need = tuple[Operation, tuple[ResourceType, str]]


class Row(NamedTuple):
    """One request, all the rights that it takes, and the answer to whoever has them."""

    template: str
    method: str
    path: str
    needs: list[Need]
    body: object = None
    status: int = 200


def topic(name: str) -> tuple[ResourceType, str]:
    return ResourceType.TOPIC, name


SEE, ALTER = [(O.DESCRIBE, CLUSTER)], [(O.ALTER, CLUSTER)]
SEE_SETTINGS, SET = [(O.DESCRIBE_CONFIGS, CLUSTER)], [(O.ALTER_CONFIGS, CLUSTER)]
WEB = topic("web")
JOBS, EX = topic("queue.jobs"), topic("ex")
READ_WEB = {"principal": "User:x", "resource": "topic", "operation": "read", "name": "web"}
LIMIT = {"entity": {"user": "limited"}, "limits": {"request_rate": 1000}}

ROWS = [
    # Whoever has logged in may ask; lists show what he may see.
    Row("/", "GET", "/", []),
    Row("/openapi.json", "GET", "/openapi.json", []),
    Row("/v1/topics", "GET", "/v1/topics", []),
    Row("/v1/groups", "GET", "/v1/groups", []),
    Row("/v1/tokens", "GET", "/v1/tokens", []),
    Row("/v1/tokens", "POST", "/v1/tokens", [], {"name": "own"}, 201),
    Row("/v1/tokens/{id}", "GET", "/v1/tokens/absent", [], status=404),
    Row("/v1/me", "GET", "/v1/me", []),
    Row("/v1/me/password", "PUT", "/v1/me/password", [], {"password": ""}, 400),
    # The node
    Row("/v1/broker", "GET", "/v1/broker", SEE),
    Row("/metrics", "GET", "/metrics", SEE),
    Row("/metrics/json", "GET", "/metrics/json", SEE),
    # Topics
    Row("/v1/topics", "POST", "/v1/topics", [(O.CREATE, topic("web-made"))], {"name": "web-made"},
        201),
    Row("/v1/topics", "POST", "/v1/topics", [(O.CREATE, CLUSTER)], {"name": "web-any"}, 201),
    Row("/v1/topics/{name}", "GET", "/v1/topics/web", [(O.DESCRIBE, WEB)]),
    Row("/v1/topics/{name}", "GET", "/v1/topics/absent", [(O.DESCRIBE, topic("absent"))],
        status=404),
    Row("/v1/topics/{name}", "PUT", "/v1/topics/web-put", [(O.CREATE, topic("web-put"))], {}, 201),
    Row("/v1/topics/{name}", "PUT", "/v1/topics/web",
        [(O.DESCRIBE, WEB), (O.ALTER_CONFIGS, WEB)], {"configs": {"retention.ms": 3_600_000}}),
    Row("/v1/topics/{name}", "PUT", "/v1/topics/web", [(O.DESCRIBE, WEB), (O.ALTER, WEB)],
        {"partitions": 2}),
    Row("/v1/topics/{name}", "DELETE", "/v1/topics/web-gone", [(O.DELETE, topic("web-gone"))]),
    Row("/v1/topics/{name}/messages", "GET", "/v1/topics/web/messages", [(O.READ, WEB)]),
    Row("/v1/topics/{name}/messages", "POST", "/v1/topics/web/messages", [(O.WRITE, WEB)],
        {"value": "x"}),
    Row("/v1/topics/{name}/messages", "POST", "/v1/topics/web-auto/messages",
        [(O.WRITE, topic("web-auto")), (O.CREATE, topic("web-auto"))], {"value": "x"}),
    # Groups
    Row("/v1/groups/{id:path}", "GET", "/v1/groups/matrix-group", [(O.DESCRIBE, GROUP)]),
    Row("/v1/groups/{id:path}", "DELETE", "/v1/groups/matrix-gone", [(O.DELETE, GONE_GROUP)]),
    # Users, roles, tokens
    Row("/v1/users", "GET", "/v1/users", SEE),
    Row("/v1/users/{name:path}", "GET", "/v1/users/admin", SEE),
    Row("/v1/users/{name:path}", "PUT", "/v1/users/made", ALTER, {"password": "p"}, 201),
    Row("/v1/users/{name:path}", "DELETE", "/v1/users/gone", ALTER),
    Row("/v1/roles", "GET", "/v1/roles", SEE),
    Row("/v1/roles/{name}", "GET", "/v1/roles/admin", SEE),
    Row("/v1/roles/{name}", "PUT", "/v1/roles/made", ALTER, {"rules": []}, 201),
    Row("/v1/roles/{name}", "DELETE", "/v1/roles/gone", ALTER),
    Row("/v1/roles/{name}/members/{principal:path}", "PUT", "/v1/roles/consumer/members/other",
        ALTER),
    Row("/v1/roles/{name}/members/{principal:path}", "DELETE",
        "/v1/roles/producer/members/gone-too", ALTER),
    Row("/v1/tokens", "POST", "/v1/tokens", ALTER, {"user": "somebody"}, 201),
    Row("/v1/tokens/{id}", "DELETE", "/v1/tokens/absent", ALTER, status=404),
    # Rules, quotas
    Row("/v1/acls", "GET", "/v1/acls", SEE),
    Row("/v1/acls", "POST", "/v1/acls", ALTER, {"rules": [READ_WEB]}, 201),
    Row("/v1/acls", "DELETE", "/v1/acls?principal=User:x", ALTER),
    Row("/v1/quotas", "GET", "/v1/quotas", SEE_SETTINGS),
    Row("/v1/quotas", "PUT", "/v1/quotas", SET, LIMIT),
    Row("/v1/quotas", "DELETE", "/v1/quotas?user=gone-limited", SET),
    # The cluster
    Row("/v1/cluster", "GET", "/v1/cluster", SEE),
    Row("/v1/cluster/nodes", "GET", "/v1/cluster/nodes", SEE),
    Row("/v1/cluster/ranges", "GET", "/v1/cluster/ranges", SEE),
    Row("/v1/cluster/rebalance", "POST", "/v1/cluster/rebalance", ALTER),
    Row("/v1/cluster/nodes/{node}", "DELETE", "/v1/cluster/nodes/99", ALTER, status=404),
    Row("/v1/cluster/nodes/{node}/drain", "PUT", "/v1/cluster/nodes/99/drain", ALTER, status=404),
    Row("/v1/cluster/nodes/{node}/drain", "DELETE", "/v1/cluster/nodes/99/drain", ALTER,
        status=404),
    # Queues
    Row("/v1/queues", "GET", "/v1/queues", []),
    Row("/v1/queues/{name:path}", "GET", "/v1/queues/jobs", [(O.DESCRIBE, JOBS)]),
    Row("/v1/queues/{name:path}", "PUT", "/v1/queues/made", [(O.CREATE, topic("queue.made"))], {},
        201),
    Row("/v1/queues/{name:path}", "DELETE", "/v1/queues/gone", [(O.DELETE, topic("queue.gone"))]),
    Row("/v1/queues/{name:path}/messages", "GET", "/v1/queues/jobs/messages", [(O.READ, JOBS)]),
    Row("/v1/queues/{name:path}/messages", "POST", "/v1/queues/jobs/messages", [(O.WRITE, JOBS)],
        {"value": "x"}),
    Row("/v1/queues/{name:path}/take", "POST", "/v1/queues/jobs/take", [(O.READ, JOBS)], {}),
    Row("/v1/queues/{name:path}/purge", "POST", "/v1/queues/jobs/purge", [(O.DELETE, JOBS)]),
    Row("/v1/queues/{name:path}/move", "POST", "/v1/queues/jobs/move",
        [(O.READ, JOBS), (O.WRITE, topic("queue.others"))], {"destination": "others"}),
    Row("/v1/exchanges", "GET", "/v1/exchanges", []),
    Row("/v1/exchanges/{name:path}", "PUT", "/v1/exchanges/ex-made",
        [(O.CREATE, topic("ex-made"))], {}),
    Row("/v1/exchanges/{name:path}", "DELETE", "/v1/exchanges/ex-gone",
        [(O.DELETE, topic("ex-gone"))]),
    Row("/v1/exchanges/{name:path}/messages", "POST", "/v1/exchanges/ex/messages",
        [(O.WRITE, EX)], {"value": "x"}),
    Row("/v1/bindings", "GET", "/v1/bindings", []),
    Row("/v1/bindings", "POST", "/v1/bindings", [(O.READ, EX), (O.WRITE, JOBS)],
        {"source": "ex", "destination": "jobs", "key": "k"}, 201),
    Row("/v1/bindings", "DELETE", "/v1/bindings?source=ex&destination=jobs&key=k",
        [(O.READ, EX), (O.WRITE, JOBS)]),
]  # fmt: skip

numbers = itertools.count()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """A node on which everything that the table names is there."""
    with web_node(tmp_path_factory.mktemp("matrix")) as made:
        with made.client() as admin:
            for name in ("web", "web-gone"):
                admin.ask(*requests.create_topic(name))
            for group in (GROUP[1], GONE_GROUP[1]):
                position = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
                moved = OffsetCommitRequestTopic(name="web", partitions=[position])
                request = OffsetCommitRequest(group_id=group, topics=[moved])
                assert codes(admin.ask(request, 9)) == {0}
        with browsing(made) as web:
            for path, body in (
                ("/v1/users/gone", {"password": "p"}),
                ("/v1/roles/gone", {"rules": []}),
                ("/v1/roles/producer/members/gone-too", None),
                ("/v1/quotas", {**LIMIT, "entity": {"user": "gone-limited"}}),
                ("/v1/queues/jobs", {}),
                ("/v1/queues/others", {}),
                ("/v1/queues/gone", {}),
                ("/v1/exchanges/ex", {}),
                ("/v1/exchanges/ex-gone", {}),
            ):
                assert web.put(path, json=body, auth=ADMIN).status_code in (200, 201)
        yield made


@pytest.fixture
def web(node: SecureNode) -> Iterator[httpx.Client]:
    with browsing(node) as client:
        yield client


def named(row: Row) -> str:
    return f"{row.method} {row.path} {'+'.join(need[0].name for need in row.needs)}"


ids = [named(row) for row in ROWS]


WRONG = itertools.cycle(
    [bearer("x.y.z"), bearer("mst_abc_def"), {"authorization": "Basic bm9ib2R5Ondyb25n"}]
)


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_nobody_unknown_is_served(web: httpx.Client, row: Row) -> None:
    for headers in ({}, next(WRONG)):
        answer = web.request(row.method, row.path, json=row.body, headers=headers)
        assert answer.status_code == 401, headers
        assert "Basic" in answer.headers["www-authenticate"]
        assert answer.json()["code"] == "AUTHENTICATION_FAILED"


@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_without_rights_it_is_refused_and_the_last_missing_right_still_counts(
    node: SecureNode, web: httpx.Client, row: Row
) -> None:
    name = f"matrix-{next(numbers)}"
    node.make_user(name)
    with node.client() as admin:
        for need in row.needs:
            refused = web.request(row.method, row.path, json=row.body, auth=known(name))
            assert refused.status_code == 403, f"allowed before {need}"
            admin.allow(rule(name, *need))
    served = web.request(row.method, row.path, json=row.body, auth=known(name))
    assert served.status_code == row.status, served.text
    asked = web.request(row.method, row.path, json=row.body, auth=ADMIN)
    assert asked.status_code not in (401, 403), asked.text


DENIED = [row for row in ROWS if row.needs and O.CREATE not in dict(row.needs)]


@pytest.mark.parametrize("row", DENIED, ids=[named(row) for row in DENIED])
def test_a_deny_refuses_even_an_admin(node: SecureNode, web: httpx.Client, row: Row) -> None:
    name = f"matrix-{next(numbers)}"
    node.make_user(name)
    assert web.put(f"/v1/roles/admin/members/{name}", auth=ADMIN).status_code == 200
    with node.client() as admin:
        admin.allow(*(rule(name, *need, deny=True) for need in row.needs))
    refused = web.request(row.method, row.path, json=row.body, auth=known(name))
    assert refused.status_code == 403


def test_a_deny_of_creating_holds_for_every_way_to_create(
    node: SecureNode, web: httpx.Client
) -> None:
    node.make_user("uncreative")
    web.put("/v1/roles/admin/members/uncreative", auth=ADMIN)
    with node.client() as admin:
        admin.allow(
            rule("uncreative", O.CREATE, CLUSTER, deny=True),
            rule("uncreative", O.CREATE, topic("*"), deny=True),
        )
    for method, path, body in (
        ("POST", "/v1/topics", {"name": "never"}),
        ("PUT", "/v1/topics/never", {}),
        ("POST", "/v1/topics/never/messages", {"value": "x"}),
    ):
        answer = web.request(method, path, json=body, auth=known("uncreative"))
        assert answer.status_code == 403
    assert web.get("/v1/topics/never", auth=ADMIN).status_code == 404


@pytest.mark.parametrize("path", sorted(OPEN_TO_ALL))
def test_health_is_told_to_everybody_and_its_figures_to_those_who_may_see_the_cluster(
    web: httpx.Client, path: str
) -> None:
    answer = web.get(path)
    assert answer.status_code == 200
    assert not {"topic_count", "components", "memory_usage_mb"} & answer.json().keys()
    assert ("topic_count" in web.get(path, auth=ADMIN).json()) == (path == "/health")
    assert web.get(path, auth=("admin", "wrong")).status_code == 401


def test_every_operation_that_is_served_has_a_row() -> None:
    served = {(method, address.path) for address in ADDRESSES for method in address.operations}
    rows = {(row.method, row.template) for row in ROWS}
    assert served | {OPENAPI} == rows | {("GET", path) for path in OPEN_TO_ALL}


def test_every_operation_names_its_right_or_is_known_to_look_itself() -> None:
    """What a handler decides alone is listed here, so that forgetting a right is noticed."""
    unnamed = {
        (method, address.path)
        for address in ADDRESSES
        for method, operation in address.operations.items()
        if operation.right is None
    }
    assert unnamed == {("GET", path) for path in OPEN_TO_ALL} | {
        ("GET", "/"),
        ("GET", "/v1/topics"),
        ("POST", "/v1/topics"),
        ("PUT", "/v1/topics/{name}"),
        ("GET", "/v1/groups"),
        ("GET", "/v1/me"),
        ("PUT", "/v1/me/password"),
        ("GET", "/v1/tokens"),
        ("POST", "/v1/tokens"),
        ("GET", "/v1/tokens/{id}"),
        ("DELETE", "/v1/tokens/{id}"),
        ("GET", "/v1/queues"),
        ("GET", "/v1/queues/{name:path}"),
        ("PUT", "/v1/queues/{name:path}"),
        ("DELETE", "/v1/queues/{name:path}"),
        ("GET", "/v1/queues/{name:path}/messages"),
        ("POST", "/v1/queues/{name:path}/messages"),
        ("POST", "/v1/queues/{name:path}/take"),
        ("POST", "/v1/queues/{name:path}/purge"),
        ("POST", "/v1/queues/{name:path}/move"),
        ("GET", "/v1/exchanges"),
        ("PUT", "/v1/exchanges/{name:path}"),
        ("DELETE", "/v1/exchanges/{name:path}"),
        ("POST", "/v1/exchanges/{name:path}/messages"),
        ("GET", "/v1/bindings"),
        ("POST", "/v1/bindings"),
        ("DELETE", "/v1/bindings"),
    }


def test_head_takes_the_same_right_and_options_a_login(node: SecureNode, web: httpx.Client) -> None:
    name = f"matrix-{next(numbers)}"
    node.make_user(name)
    for row in ROWS:
        if row.method == "GET":
            expected = 403 if row.needs else row.status
            assert web.head(row.path, auth=known(name)).status_code == expected, row.path
        assert web.options(row.path).status_code == 401
        assert web.options(row.path, auth=known(name)).status_code == 204


def test_lists_show_what_the_asker_may_see(node: SecureNode, web: httpx.Client) -> None:
    node.make_user("looker", rule("looker", O.DESCRIBE, WEB))
    seen = web.get("/v1/topics", auth=known("looker")).json()
    assert [each["name"] for each in seen] == ["web"]
    assert web.get("/v1/groups", auth=known("looker")).json() == []
    node.make_user("watcher", rule("watcher", O.DESCRIBE, GROUP))
    watched = web.get("/v1/groups", auth=known("watcher")).json()
    assert [each["group_id"] for each in watched] == [GROUP[1]]
    # Positions in topics that he may not see are not told either.
    [group] = watched
    assert (
        web.get(f"/v1/groups/{group['group_id']}", auth=known("watcher")).json()["positions"] == []
    )


def test_settings_of_a_topic_take_a_right_of_their_own(node: SecureNode, web: httpx.Client) -> None:
    node.make_user("glimpser", rule("glimpser", O.DESCRIBE, WEB))
    assert web.get("/v1/topics/web", auth=known("glimpser")).json()["configs"] is None
    with node.client() as admin:
        admin.allow(rule("glimpser", O.DESCRIBE_CONFIGS, WEB))
    assert web.get("/v1/topics/web", auth=known("glimpser")).json()["configs"] is not None


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/topics/{}", None),
        ("PUT", "/v1/topics/{}", {"partitions": 3}),
        ("DELETE", "/v1/topics/{}", None),
        ("GET", "/v1/topics/{}/messages", None),
        ("POST", "/v1/topics/{}/messages", {"value": "x"}),
    ],
)
def test_a_refused_topic_looks_the_same_whether_it_is_there_or_not(
    node: SecureNode, web: httpx.Client, method: str, path: str, body: object
) -> None:
    node.make_user("prober")
    there, absent = (
        web.request(method, path.format(name), json=body, auth=known("prober"))
        for name in ("web", "not")
    )
    assert there.status_code == absent.status_code == 403
    assert there.text.replace("web", "not") == absent.text
