"""Health checks of the resources that clients use."""

from mainstem.protocols.shared_resources import Resources
from mainstem.telemetry.health import Component, HealthState


def resources_health(resources: Resources) -> tuple[Component, ...]:
    """Whether clients can still connect, and large frames can still be received."""
    return _connections(resources), _frames(resources)


def _connections(resources: Resources) -> Component:
    admission = resources.admission
    if not admission.is_near_limit:
        return Component("connections", HealthState.OK)
    used = f"{admission.held} of {admission.descriptors} descriptors for clients are in use"
    return Component("connections", HealthState.DEGRADED, f"{used}: raise ulimit -n")


def _frames(resources: Resources) -> Component:
    memory = resources.memory
    if not memory.is_near_limit:
        return Component("frame memory", HealthState.OK)
    used = f"{memory.used_bytes} of {memory.limit_bytes} bytes for received frames are in use"
    return Component(
        "frame memory", HealthState.DEGRADED, f"{used}: see memory.large_frames_bytes_max"
    )
