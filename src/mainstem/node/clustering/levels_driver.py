"""Announces to each new leader which levels of ``mainstem.version`` this node reads.

A leader of release 0.1 does not record the levels that a node registers with, and a snapshot of
that release does not keep them. So a node repeats it to every leader, as long as the cluster is
below what the node reads; a leader that knows it already records nothing.
"""

import asyncio
import contextlib
import logging
from typing import Final

from mainstem.cluster.raft.messages import SoftState
from mainstem.model.errors import MainstemError
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId
from mainstem.placement.changes.commands import AnnounceLevels
from mainstem.placement.service import PlacementService

RETRY_S: Final = 2.0

_log = logging.getLogger(__name__)


class LevelsDriver:
    """Runs on every node of a cluster.

    Args:
        service: the catalogue.
        node: which node this is.
        incarnation: the one that it has registered with.
    """

    def __init__(self, service: PlacementService, node: NodeId, incarnation: int) -> None:
        self._service = service
        self._announcement = AnnounceLevels(node, incarnation, OWN_LEVELS)
        self._leader_changed = asyncio.Event()

    def on_role(self, role: SoftState) -> None:
        """Announce again: the group may have another leader."""
        del role
        self._leader_changed.set()

    async def run(self) -> None:
        """Announce until cancelled."""
        while True:
            retry_s = None if await self.announce() else RETRY_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await self._leader_changed.wait()
            self._leader_changed.clear()

    async def announce(self) -> bool:
        """Whether the leader has the levels, or does not need them."""
        if self._service.catalogue.level >= OWN_LEVELS[1]:
            return True
        try:
            await self._service.submit(self._announcement)
        except MainstemError as error:
            _log.debug("the leader does not accept the levels of this node: %s", error)
            return False
        return True
