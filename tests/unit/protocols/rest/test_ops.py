"""What operators ask over HTTP, and what every request has in common."""

import json

import pytest
from tests.unit.protocols.rest.counter import Rest

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.protocols.rest.routing.routes import ADDRESSES
from mainstem.telemetry.health import Component, HealthState


async def test_the_broker_is_described_with_strikemqs_names(rest: Rest) -> None:
    rest.clock.now_s += 5
    body = (await rest.http.get("/v1/broker")).json()
    assert body["uptime_seconds"] == 5
    assert (body["broker_id"], body["port"], body["http_port"]) == (7, 9092, 8080)
    assert {"version", "io_threads", "platform", "log_dir", "segment_size"} <= set(body)


@pytest.mark.parametrize(
    ("state", "health", "live", "ready"),
    [
        (HealthState.OK, 200, 200, 200),
        (HealthState.DEGRADED, 503, 200, 200),
        (HealthState.STARTING, 503, 200, 503),
        (HealthState.STOPPING, 503, 200, 503),
        (HealthState.FAILED, 503, 503, 503),
    ],
)
async def test_health_is_told_by_status_and_body(
    rest: Rest, state: HealthState, health: int, live: int, ready: int
) -> None:
    rest.component = Component("log", state, "why")
    answers = [await rest.http.get(f"/health{tail}") for tail in ("", "/live", "/ready")]
    assert [answer.status_code for answer in answers] == [health, live, ready]
    body = answers[0].json()
    assert {
        "is_healthy",
        "status",
        "active_connections",
        "queue_count",
        "in_flight_messages",
        "total_messages_published",
        "total_messages_delivered",
        "memory_usage_mb",
        "timestamp",
    } <= set(body)
    assert body["is_healthy"] == (state is HealthState.OK)
    assert body["timestamp"] == "2023-11-14T22:13:20.000Z"
    assert body["memory_usage_mb"] > 1


async def test_metrics_are_served_for_prometheus_and_for_people(rest: Rest) -> None:
    await rest.post("orders", [{"value": "v"}] * 3)
    rest.counter.add_group("g", "orders", 1)
    text = await rest.http.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'mainstem_stream_end_offset{partition="0",topic="orders"} 3.0' in text.text
    assert 'mainstem_group_lag_records{group="g",partition="0",topic="orders"} 2.0' in text.text
    assert 'mainstem_http_requests_total{status="200"}' in text.text
    body = (await rest.http.get("/metrics/json")).json()
    assert body["total_consumer_lag"] == 2
    accepted = await rest.http.get("/metrics", headers={"accept": "application/json"})
    assert accepted.json()["topic_count"] == 1


async def test_figures_are_computed_once_a_second(rest: Rest) -> None:
    await rest.http.get("/metrics/json")
    await rest.post("t", {"value": "v"})
    assert (await rest.http.get("/metrics/json")).json()["topic_count"] == 0
    rest.clock.now_s += 1
    assert (await rest.http.get("/metrics/json")).json()["topic_count"] == 1


async def test_the_index_leads_to_everything(rest: Rest) -> None:
    answer = await rest.http.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    for path in ("/v1/broker", "/v1/topics", "/v1/groups", "/health", "/metrics", "/openapi.json"):
        assert f'href="{path}"' in answer.text
        assert (await rest.http.get(path)).status_code == 200


@pytest.mark.parametrize("address", ADDRESSES, ids=lambda address: address.path)
async def test_a_method_that_is_not_served_is_a_405_that_says_which_are(
    rest: Rest, address: object
) -> None:
    path = address.path.replace("{name}", "t").replace("{id:path}", "g")  # type: ignore[attr-defined]
    answer = await rest.http.request("PATCH", path)
    assert answer.status_code == 405
    operations = address.operations  # type: ignore[attr-defined]
    assert set(operations) <= set(answer.headers["allow"].split(", "))
    options = await rest.http.request("OPTIONS", path)
    assert options.status_code == 204
    assert options.headers["allow"] == answer.headers["allow"]


async def test_an_unknown_address_is_a_404_with_a_reason(rest: Rest) -> None:
    for path in ("/nowhere", "/v1", "/v1/topics/", "/v1/topics/t/messages/1"):
        answer = await rest.http.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["code"] == "NOT_FOUND"


async def test_while_stopping_only_health_and_metrics_are_answered(rest: Rest) -> None:
    rest.app.draining = True
    for method, path in (("GET", "/v1/topics"), ("POST", "/v1/topics/t/messages")):
        answer = await rest.http.request(method, path)
        assert answer.status_code == 503
        assert answer.json()["code"] == "SHUTTING_DOWN"
        assert answer.headers["retry-after"] == "1"
    for path in ("/health", "/health/live", "/metrics/json"):
        assert (await rest.http.get(path)).status_code == 200


async def test_a_page_of_another_site_cannot_change_anything(rest: Rest) -> None:
    await rest.topic("t")
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://node:81"},
        {"sec-fetch-site": "cross-site"},
    ):
        for method, path in (("DELETE", "/v1/topics/t"), ("POST", "/v1/topics/t/messages")):
            answer = await rest.http.request(method, path, headers=headers)
            assert answer.status_code == 403, headers
    own = await rest.http.delete("/v1/topics/t", headers={"origin": "http://node"})
    assert own.status_code == 200


async def test_what_nobody_foresaw_is_a_500_that_tells_nothing(
    rest: Rest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a secret")

    monkeypatch.setattr(rest.counter, "all", fail)
    answer = await rest.http.get("/v1/topics")
    assert answer.status_code == 500
    assert answer.json()["code"] == "INTERNAL"
    assert "secret" not in answer.text
    assert "ZeroDivisionError" in caplog.text


async def test_an_error_of_the_house_keeps_its_words(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise Unavailable(ErrorCode.DISK_FULL, "no space", subject="/data", remedy="free some")

    monkeypatch.setattr(rest.counter, "all", fail)
    answer = await rest.http.get("/v1/topics")
    assert answer.status_code == 507
    assert answer.json() == {
        "code": "DISK_FULL",
        "cause": "no space",
        "subject": "/data",
        "remedy": "free some",
    }


async def test_every_answer_is_counted_by_status(rest: Rest) -> None:
    await rest.http.get("/v1/broker")
    await rest.http.get("/nowhere")
    await rest.http.get("/v1/topics/t")
    assert rest.metrics.http_requests[200] == 1
    assert rest.metrics.http_requests[404] == 2


async def test_head_is_served_where_get_is(rest: Rest) -> None:
    answer = await rest.http.head("/v1/broker")
    assert answer.status_code == 200
    assert json.loads((await rest.http.get("/v1/broker")).content)
