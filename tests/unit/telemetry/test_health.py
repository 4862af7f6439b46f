"""Health: the worst part decides."""

import pytest

from mainstem.telemetry.health import Component, HealthState, health_json, summarize
from mainstem.telemetry.metrics import Metrics, QueueSample, Sample
from mainstem.telemetry.queue_exposition import queue_summary


@pytest.mark.parametrize(
    ("states", "status", "live", "ready"),
    [
        ([], "starting", True, False),
        ([HealthState.OK, HealthState.OK], "healthy", True, True),
        ([HealthState.OK, HealthState.STARTING], "starting", True, False),
        ([HealthState.OK, HealthState.DEGRADED], "degraded", True, True),
        ([HealthState.STOPPING, HealthState.DEGRADED], "stopping", True, False),
        ([HealthState.FAILED, HealthState.STOPPING, HealthState.OK], "failed", False, False),
    ],
)
def test_the_worst_part_decides(
    states: list[HealthState], status: str, live: bool, ready: bool
) -> None:
    health = summarize(Component(str(i), state) for i, state in enumerate(states))
    assert (health.status, health.live, health.ready) == (status, live, ready)
    assert health.healthy == (status == "healthy")


def test_the_body_names_the_part_that_is_not_well() -> None:
    health = summarize([Component("log", HealthState.DEGRADED, "disk full")])
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
