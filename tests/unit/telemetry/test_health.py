"""Health: the worst part decides."""

import pytest

from mainstem.telemetry.health import Component, State, health_json, summarize
from mainstem.telemetry.metrics import Metrics, QueueSample, Sample
from mainstem.telemetry.queue_exposition import queue_summary


@pytest.mark.parametrize(
    ("states", "status", "live", "ready"),
    [
        ([], "starting", True, False),
        ([State.OK, State.OK], "healthy", True, True),
        ([State.OK, State.STARTING], "starting", True, False),
        ([State.OK, State.DEGRADED], "degraded", True, True),
        ([State.STOPPING, State.DEGRADED], "stopping", True, False),
        ([State.FAILED, State.STOPPING, State.OK], "failed", False, False),
    ],
)
def test_the_worst_part_decides(states: list[State], status: str, live: bool, ready: bool) -> None:
    health = summarize(Component(str(i), state) for i, state in enumerate(states))
    assert (health.status, health.live, health.ready) == (status, live, ready)
    assert health.healthy == (status == "healthy")


def test_the_body_names_the_part_that_is_not_well() -> None:
    health = summarize([Component("log", State.DEGRADED, "disk full")])
    body = health_json(health, Metrics(), Sample(), timestamp="2026-01-01T00:00:00Z")
    assert body["is_healthy"] is False
    assert body["components"] == [{"name": "log", "state": "degraded", "detail": "disk full"}]


def test_queues_and_what_is_in_hand_are_counted() -> None:
    queues = [
        QueueSample("/", name, 5, unsettled, 0, 100, 1) for name, unsettled in [("a", 2), ("b", 1)]
    ]
    body = health_json(summarize([]), Metrics(), Sample(queues=queues), timestamp="now")
    assert (body["queue_count"], body["in_flight_messages"]) == (2, 3)


def test_the_latency_of_deliveries_is_that_of_first_ones() -> None:
    counts = {"delivered": {"": 10}, "redelivered": {"": 2}, "delivery_ms": {"": 20}}
    assert queue_summary(Sample(queue_counts=counts))["average_delivery_latency_ms"] == 2.5
    assert queue_summary(Sample())["average_delivery_latency_ms"] == 0.0
