"""Queues over HTTP: declared, published to, looked into, moved, counted."""

from collections.abc import Iterator

import httpx
import pytest
from tests.integration.several import node_under_test


@pytest.fixture(scope="module")
def web() -> Iterator[httpx.Client]:
    with (
        node_under_test() as node,
        httpx.Client(base_url=f"http://{node.http}", timeout=30) as client,
    ):
        yield client


def test_a_queue_is_declared_filled_looked_into_and_emptied(web: httpx.Client) -> None:
    made = web.put("/v1/queues/jobs", json={"arguments": {"x-max-priority": 3}})
    again = web.put("/v1/queues/jobs", json={"arguments": {"x-max-priority": 3}})
    other = web.put("/v1/queues/jobs", json={"arguments": {"x-max-priority": 4}})
    messages = [{"value": "1", "headers": {"colour": "red"}}, {"value": "2"}, {"value": "3"}]
    stored = web.post("/v1/queues/jobs/messages", json={"messages": messages})
    seen = web.get("/v1/queues/jobs/messages", params={"limit": 2}).json()
    taken = web.post("/v1/queues/jobs/take", json={"count": 2}).json()
    purged = web.post("/v1/queues/jobs/purge").json()

    assert (made.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert other.json()["code"] == "DECLARATION_DIFFERS"
    assert stored.json() == {"stored": 3, "unrouted": 0}
    assert [each["value"] for each in seen] == ["1", "2"]
    assert seen[0]["headers"] == [{"name": "colour", "value": "red", "encoding": "text"}]
    assert [each["value"] for each in taken] == ["1", "2"]
    assert purged == {"messages": 1}
    assert web.delete("/v1/queues/jobs").json() == {"deleted": "jobs", "messages": 0}
    assert web.get("/v1/queues/jobs").status_code == 404


def test_an_exchange_leads_to_its_queues(web: httpx.Client) -> None:
    web.put("/v1/queues/eu")
    web.put("/v1/exchanges/orders", json={"type": "topic"})
    binding = {"source": "orders", "destination": "eu", "key": "eu.#"}
    bound = web.post("/v1/bindings", json=binding)
    messages = [{"key": "eu.1", "value": "here"}, {"key": "us.1", "value": "there"}]
    stored = web.post("/v1/exchanges/orders/messages", json=messages).json()
    listed = web.get("/v1/bindings").json()
    records = web.get("/v1/topics/orders/messages").json()
    web.delete("/v1/bindings", params=binding)

    assert bound.status_code == 201
    assert stored == {"stored": 2, "unrouted": 1}
    assert [each["key"] for each in listed] == ["eu.#"]
    assert [each["value"] for each in records] == ["here", "there"]
    assert web.get("/v1/bindings").json() == []
    assert "orders" in [each["name"] for each in web.get("/v1/exchanges").json()]
    taken = web.post("/v1/queues/eu/take").json()
    assert [(each["value"], each["exchange"]) for each in taken] == [("here", "orders")]


def test_dead_letters_go_back_where_they_died(web: httpx.Client) -> None:
    web.put("/v1/queues/morgue")
    arguments = {
        "x-message-ttl": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "morgue",
    }
    web.put("/v1/queues/short", json={"arguments": arguments})
    web.post("/v1/queues/short/messages", json=[{"value": "1"}, {"value": "2"}])
    letters: list[dict[str, object]] = []
    for _ in range(100):
        letters = web.get("/v1/queues/morgue/messages").json()
        if len(letters) == 2:
            break
    web.put("/v1/queues/short", json={"arguments": {}, "on_difference": "ignore"})
    web.put("/v1/queues/rest", json={})
    nothing = web.post("/v1/queues/morgue/move", json={"where": {"reason": "rejected"}}).json()
    moved = web.post(
        "/v1/queues/morgue/move",
        json={"where": {"reason": "expired"}, "destination": "rest", "limit": 1},
    ).json()
    wrong = web.post("/v1/queues/morgue/move", json={"where": {"colour": "red"}})

    assert [each["deaths"][0]["reason"] for each in letters] == ["expired"] * 2  # type: ignore[index]
    assert (nothing["messages"], moved["messages"]) == (0, 1)
    assert wrong.status_code == 400
    assert [each["value"] for each in web.get("/v1/queues/rest/messages").json()] == ["1"]


def test_what_queues_did_is_counted(web: httpx.Client) -> None:
    web.put("/v1/queues/counted")
    web.post("/v1/queues/counted/messages", json=[{"value": "1"}])

    text = web.get("/metrics").text
    summary = web.get("/metrics/json").json()

    assert 'mainstem_queue_ready{namespace="/",queue="counted"} 1.0' in text
    assert "mainstem_queues_messages_published_total" in text
    assert summary["queue_count"] >= 1
    assert summary["total_messages_queued"] >= 1


def test_names_with_slashes_and_spaces_are_names(web: httpx.Client) -> None:
    web.put("/v1/queues/a%20b/c")
    stored = web.post("/v1/queues/a%20b/c/messages", json=[{"value": "1"}])

    assert stored.json() == {"stored": 1, "unrouted": 0}
    assert web.get("/v1/queues/a%20b/c").json()["name"] == "a b/c"
