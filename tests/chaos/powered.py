"""A cluster whose nodes have file systems of their own, which lose their power. Root only."""

import subprocess
from collections.abc import Iterable, Sequence

from msgspec.structs import replace
from tests.chaos.power_loss import FileSystem

from mainstem.log.checkpoint import load_checkpoint, save_checkpoint
from mainstem.testing.local_cluster import LocalCluster, MemberNode
from mainstem.testing.server_process import ServerFailed

END_TIMEOUT_S = 2.0


class PoweredCluster(LocalCluster):
    """Each node on an ext4 of its own; all of them are unmounted when the block is left."""

    def __init__(self, count: int = 3, *, arguments: Sequence[str] = ()) -> None:
        super().__init__(count, arguments=arguments)
        self._disks: dict[int, FileSystem] = {}

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        """A node whose data is on a file system of its own."""
        place = self.folder / f"disk-{number}"
        place.mkdir()
        disk = self._disks[number] = FileSystem(place)
        disk.mount()
        node = super().member(number, join)
        node.data_dir = disk.mounted / "data"
        return node

    def lose_power(self, nodes: Iterable[MemberNode]) -> None:
        """Cut the power of nodes at one moment, then bring disks and nodes back."""
        hit = list(nodes)
        for node in hit:
            self._disks[node.number].lose_power()
        for node in hit:
            _end(node)
            disk = self._disks[node.number]
            disk.unmount()
            disk.mount()
            _begin_another_boot(node)
        self.start_together(hit)

    def fill(self, nodes: Iterable[MemberNode]) -> None:
        """Let the disks of nodes be full."""
        for node in nodes:
            self._disks[node.number].fill()

    def make_room(self, nodes: Iterable[MemberNode]) -> None:
        """Let the disks of nodes have room again."""
        for node in nodes:
            self._disks[node.number].make_room()

    def close(self) -> None:
        """Kill what still runs and unmount."""
        for node in self.nodes.values():
            node.kill9()
        for disk in self._disks.values():
            if disk.mounted.is_mount():
                subprocess.run(["umount", "-l", str(disk.mounted)], check=False)
        super().close()


def _begin_another_boot(node: MemberNode) -> None:
    """Let the node find that the machine went down, as it does when the power really went."""
    found = load_checkpoint(node.data_dir)
    if found is not None:
        save_checkpoint(node.data_dir, replace(found, boot_id="the boot before the power went"))


def _end(node: MemberNode) -> None:
    """A node notices that its disk fails and ends; an idle one may not, and is killed."""
    try:
        node.wait(timeout_s=END_TIMEOUT_S)
    except ServerFailed:
        node.kill9()
