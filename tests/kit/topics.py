"""Topics and settings on a catalogue whose journal is a list."""

from collections.abc import Mapping, Sequence

from tests.kit.clock import ManualClock

from mainstem.broker.services.topics_service import NodeDefaults, TopicsAdmin
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.placement.changes.commands import FormCluster, RegisterNode
from mainstem.placement.service import LonePlacementService
from mainstem.placement.state.catalogue import Catalogue

NODE = Node(NodeId(1), "127.0.0.1", 9092)
CLUSTER = "cluster-of-the-tests"


class ListJournal:
    """Commits at once."""

    snapshot_due = False

    def __init__(self) -> None:
        self.appends: list[list[bytes]] = []

    @property
    def next_index(self) -> int:
        return len(self.appends) + 1

    async def append(self, entries: Sequence[bytes]) -> None:
        self.appends.append(list(entries))

    async def snapshot(self, state: bytes) -> None:
        raise AssertionError(f"not due: {len(state)} bytes")

    def close(self) -> None:
        pass


def fatal(error: BaseException) -> None:
    raise error


async def topics_admin(
    static: Mapping[str, str] | None = None, journal: ListJournal | None = None
) -> TopicsAdmin:
    """The topics of a node that has just started."""
    service = LonePlacementService(journal or ListJournal(), Catalogue(), ManualClock(), fatal)
    await service.submit(FormCluster(CLUSTER))
    await service.submit(RegisterNode(NODE, 1, "0d" * 16, OWN_LEVELS))
    return TopicsAdmin(service, NODE, NodeDefaults(static or {}))
