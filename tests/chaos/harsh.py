"""A cluster with every fault: its network is cut, its disks fail, its clocks jump. Root only."""

from collections.abc import Sequence

from tests.chaos.fault_shim import FaultPage, compile_fault_shim
from tests.chaos.network import NetworkCluster
from tests.chaos.powered import PoweredCluster

from mainstem.testing.local_cluster import MemberNode


class HarshCluster(PoweredCluster, NetworkCluster):
    """Each node in a network namespace, on a file system of its own, with a fault page."""

    def __init__(self, count: int = 3, *, arguments: Sequence[str] = ()) -> None:
        super().__init__(count, arguments=arguments)
        self._library = compile_fault_shim(self.folder)
        self._pages: dict[int, FaultPage] = {}

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        """Make a node with a fault page."""
        node = super().member(number, join)
        path = self.folder / f"faults-{number}"
        page = self._pages[number] = FaultPage(path, self._library, node.data_dir)
        node.environment |= page.environment
        return node

    def page(self, node: MemberNode) -> FaultPage:
        """The switches of a node's process."""
        return self._pages[node.number]
