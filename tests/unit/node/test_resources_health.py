"""What `/health` says when clients have used up what is there for them."""

from mainstem.node.resource_health import resources_health
from mainstem.protocols.connection_admission import ConnectionAdmission
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.protocols.shared_resources import Resources
from mainstem.telemetry.health import HealthState


def test_a_node_with_room_is_well() -> None:
    parts = resources_health(Resources(ConnectionAdmission(600), FrameMemory(1_000)))
    assert [(part.name, part.state) for part in parts] == [
        ("connections", HealthState.OK),
        ("frame memory", HealthState.OK),
    ]


def test_descriptors_and_memory_that_are_nearly_used_up_are_told() -> None:
    resources = Resources(ConnectionAdmission(600), FrameMemory(1_000))
    while resources.admission.take("kafka"):
        pass
    assert resources.memory.take(950)
    connections, memory = resources_health(resources)
    assert connections.state is HealthState.DEGRADED
    assert "350 of 600" in connections.detail
    assert "ulimit -n" in connections.detail
    assert memory.state is HealthState.DEGRADED
    assert "950 of 1000" in memory.detail
