"""A cluster in which the previous release and this one work together, and the faults that mix them.

Nodes begin with the previous release, since only what it has made can be given back to it, and are
upgraded one by one; the feature level is never raised. Then a node runs the previous release again
for a while, and this one after it, between kills, pauses and partitions.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from tests.chaos.faults import FAULTS, NETWORK_FAULTS, Fault
from tests.chaos.harsh import HarshCluster
from tests.upgrade.previous_release import CURRENT, previous_release

from mainstem.client.blocking_admin import BlockingAdmin
from mainstem.model.features import MAINSTEM_VERSION, OWN_LEVELS
from mainstem.testing.local_cluster import LocalCluster, MemberNode

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 90.0


class MixedCluster(LocalCluster):
    """Begins with the previous release on every node."""

    def member(self, number: int, join: Sequence[str]) -> MemberNode:
        """See ``LocalCluster``."""
        node = super().member(number, join)
        node.environment["PYTHONPATH"] = str(previous_release())
        return node

    def upgrade(self) -> None:
        """Let every node run this release, one after the other."""
        self.wait_for_three_voters(timeout_s=START_TIMEOUT_S)
        for node in self.nodes.values():
            _change_release(node, CURRENT, is_killed=False)

    @property
    def level(self) -> int:
        """What nodes may write; above the lowest the previous release cannot come back."""
        with BlockingAdmin(self.bootstrap) as admin:
            found = {feature.name: feature.level for feature in admin.cluster.features()}
        return found.get(MAINSTEM_VERSION, OWN_LEVELS[0])


class MixedHarshCluster(MixedCluster, HarshCluster):
    """The same with networks and disks that fail. Root only."""


def _change_release(node: MemberNode, release: Path, *, is_killed: bool) -> None:
    if is_killed:
        node.kill9()
    else:
        assert node.stop(timeout_s=STOP_TIMEOUT_S) == 0, node.log_tail()
    node.environment["PYTHONPATH"] = str(release)
    node.start(timeout_s=START_TIMEOUT_S)


def _go_back(_: LocalCluster, node: MemberNode, random: Random) -> None:
    """A node is taken back to the previous release, and upgraded again."""
    _visit(node, random, is_killed=False)


def _go_back_by_kill(_: LocalCluster, node: MemberNode, random: Random) -> None:
    """The same, and neither release ends in good order."""
    _visit(node, random, is_killed=True)


def _visit(node: MemberNode, random: Random, *, is_killed: bool) -> None:
    _change_release(node, previous_release(), is_killed=is_killed)
    time.sleep(random.uniform(1.0, 5.0))
    _change_release(node, CURRENT, is_killed=is_killed)


VERSION_FAULTS: dict[str, Fault] = {
    "previous release": _go_back,
    "previous release, killed": _go_back_by_kill,
}


def mixed_faults(*, is_harsh: bool) -> dict[str, Fault]:
    """What happens to a cluster of mixed versions; no node joins, since it could not go back."""
    return VERSION_FAULTS | FAULTS | (NETWORK_FAULTS if is_harsh else {})
