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
            task = asyncio.get_running_loop().create_task(self._raise(self._rng.choice(serving)))
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

    async def _raise(self, node: SimNode) -> None:
        """What ``mainstem cluster set-feature mainstem.version 2`` does."""
        level = {MAINSTEM_VERSION: OWN_LEVELS[1]}
        command = SetFeatures(node.catalogue.features_epoch, level)
        try:
            await node.serve(partial(node.submit, command))
        except (MainstemError, TimeoutError) as error:
            kind = error.code.name if isinstance(error, MainstemError) else "unknown"
            self._note(f"the level is not raised: {kind}")
        else:
            self._note("the level is raised")
