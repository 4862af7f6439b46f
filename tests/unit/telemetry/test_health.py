"""Health: the worst part decides."""

import pytest

from mainstem.telemetry.health import Component, State, health_json, summarize
from mainstem.telemetry.metrics import Metrics, Sample


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
