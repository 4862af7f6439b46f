"""Rolling upgrades in ``simulator``: nodes change their release, and the level is raised."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from mainstem.model.errors import MainstemError
from mainstem.model.features import LEVELS_OF_0_1, MAINSTEM_VERSION, OWN_LEVELS
from mainstem.placement.changes.commands import SetFeatures
from mainstem.testing.simulation.cluster.node import SimNode
from mainstem.testing.simulation.cluster.nodes import SimCluster

RAISE_CHANCE: Final = 0.25
ABSENT_CHANCE: Final = 0.5  # of a node to be down while the level is raised
BACK_CHANCE: Final = 0.4


class SimReleases:
    """Replaces nodes by those of the other release, and raises the level.

    Args:
        cluster: the nodes.
        note: called with the outcome.
    """

    def __init__(self, cluster: SimCluster, note: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._rng = cluster.rng
        self._note = note
        self._raising: dict[asyncio.Task[None], None] = {}

    def act(self) -> int:
        """Do one of these in a scenario of two releases; returns how many nodes were replaced."""
        judge = self._cluster.judge
        if judge is None:
            return 0
        serving = self._cluster.serving()
        if serving and self._rng.random() < RAISE_CHANCE:
            node = self._rng.choice(serving)
            task = asyncio.get_running_loop().create_task(self._raise(node, self._absent(node)))
            self._raising[task] = None
            task.add_done_callback(self._raising.pop)
            return 0
        return self._replace(self._rng.choice(list(self._cluster.nodes.values())))

    def _replace(self, node: SimNode) -> int:
        is_old = node.levels == LEVELS_OF_0_1
        if not is_old and self._rng.random() > BACK_CHANCE:
            return 0
        if node.is_up:
            if len(self._cluster.up()) == 1:
                return 0
            node.kill()
        node.levels = OWN_LEVELS if is_old else LEVELS_OF_0_1
        self._cluster.start(node)
        return 1

    def _absent(self, other: SimNode) -> SimNode | None:
        """Kill a node of the current release, to be replaced when the level has been raised."""
        if len(self._cluster.up()) < len(self._cluster.nodes) or self._rng.random() > ABSENT_CHANCE:
            return None
        found = [
            node for node in self._cluster.up() if node is not other and node.levels == OWN_LEVELS
        ]
        if not found:
            return None
        absent = self._rng.choice(found)
        absent.kill()
        return absent

    async def _raise(self, node: SimNode, absent: SimNode | None) -> None:
        """What ``mainstem cluster set-feature mainstem.version 2`` does.

        A node that was down meanwhile starts with the older release: nothing in its folder says
        that the level was raised.
        """
        level = {MAINSTEM_VERSION: OWN_LEVELS[1]}
        command = SetFeatures(node.catalogue.features_epoch, level)
        try:
            await node.serve(partial(node.submit, command))
        except (MainstemError, TimeoutError) as error:
            kind = error.code.name if isinstance(error, MainstemError) else "unknown"
            self._note(f"the level is not raised: {kind}")
        else:
            self._note("the level is raised")
        if absent is not None and not absent.is_up:
            absent.levels = LEVELS_OF_0_1
            self._cluster.start(absent)
