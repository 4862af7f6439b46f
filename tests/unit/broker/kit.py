"""Topics and settings on a catalogue whose journal is a list."""

from collections.abc import Mapping, Sequence

from mainstem.broker.admin import NodeDefaults, TopicsAdmin
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.records import FormCluster, RegisterNode
from mainstem.placement.service import PlacementService

NODE = Node(NodeId(1), "127.0.0.1", 9092)
CLUSTER = "cluster-of-the-tests"


class FixedClock:
    """A clock that stands still."""

    def wall_ms(self) -> int:
        return 1_000

    def monotonic(self) -> float:
        return 1.0


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
    service = PlacementService(journal or ListJournal(), Catalogue(), FixedClock(), fatal)
    await service.submit(FormCluster(CLUSTER))
    await service.submit(RegisterNode(NODE, 1, "0d" * 16, OWN_LEVELS))
    return TopicsAdmin(service, NODE, NodeDefaults(static or {}))
