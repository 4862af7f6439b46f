"""Liveness and readiness as a pure summary of the states that the parts of a node report.

*Live*: the process should not be restarted. *Ready*: clients may be sent here. *Healthy*: both, and
nothing needs an operator.
"""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from mainstem.telemetry.metrics import Metrics, Sample


class HealthState(Enum):
    """The state that a part reports."""

    STARTING = "starting"
    OK = "ok"
    DEGRADED = "degraded"  # serves, but needs attention: a full disk, a damaged file
    STOPPING = "stopping"
    FAILED = "failed"


class Component(Struct, frozen=True):
    """One part of the node and its state."""

    name: str
    state: HealthState
    detail: str = ""


class Health(Struct, frozen=True):
    """The health of a node, with its checks."""

    status: str
    live: bool
    ready: bool
    components: tuple[Component, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether nothing needs attention."""
        return self.status == "healthy"


def summarize(components: Iterable[Component]) -> Health:
    """The worst state decides; without any part a node is still starting."""
    parts = tuple(components)
    states = {part.state for part in parts}
    live = HealthState.FAILED not in states
    ready = bool(parts) and not states & {
        HealthState.FAILED,
        HealthState.STARTING,
        HealthState.STOPPING,
    }
    if HealthState.FAILED in states:
        status = "failed"
    elif HealthState.STOPPING in states:
        status = "stopping"
    elif HealthState.STARTING in states or not parts:
        status = "starting"
    elif HealthState.DEGRADED in states:
        status = "degraded"
    else:
        status = "healthy"
    return Health(status=status, live=live, ready=ready, components=parts)


def health_json(
    health: Health, metrics: Metrics, sample: Sample, *, timestamp: str
) -> dict[str, object]:
    """The body of ``/health``."""
    return {
        "is_healthy": health.healthy,
        "status": health.status,
        "live": health.live,
        "ready": health.ready,
        "components": [
            {"name": part.name, "state": part.state.value, "detail": part.detail}
            for part in health.components
        ],
        "active_connections": metrics.connections_active,
        "topic_count": sample.topics,
        "queue_count": len(sample.queues),
        "in_flight_messages": sum(queue.unsettled for queue in sample.queues),
        "total_messages_published": metrics.messages_in,
        "total_messages_delivered": metrics.messages_out,
        "memory_usage_mb": round(sample.memory_bytes / 2**20, 1),
        "timestamp": timestamp,
    }
