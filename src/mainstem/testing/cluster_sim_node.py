"""One node of ``cluster_sim``: the streams of a real node on real files, killed and begun anew."""

import asyncio
import os
from pathlib import Path

from mainstem.log.group_commit import GroupCommit
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.model.topic_config import topic_settings
from mainstem.placement.records import RegisterNode
from mainstem.streams.flusher import Flusher
from mainstem.streams.roll_driver import RollDriver
from mainstem.streams.service import StreamService
from mainstem.telemetry.metrics import Metrics
from mainstem.testing.cluster_sim_catalogue import NodeCatalogue, SimCatalogue
from mainstem.testing.peer_network import PeerNetwork
from mainstem.testing.raft_cluster import LoopClock


class SimNode:
    """See the module's text."""

    def __init__(
        self, number: int, folder: Path, centre: SimCatalogue, network: PeerNetwork
    ) -> None:
        self.id = NodeId(number)
        self.incarnation = 0
        self.is_up = False
        self.is_reachable = True
        self.fatal: list[BaseException] = []
        self.streams: StreamService
        self._folder = folder
        self._centre = centre
        self._network = network
        self._store: LogStore
        self._commits: GroupCommit
        self._catalogue: NodeCatalogue

    async def start(self) -> None:
        """Begin with what is on disk."""
        self.incarnation += 1
        self.is_up = True
        clock = LoopClock()
        life = self.incarnation

        def failed(error: BaseException) -> None:
            if self.is_up and self.incarnation == life:
                self.fatal.append(error)

        self._store = LogStore(self._folder, StoreSettings(), clock)
        await self._centre.service.submit(
            RegisterNode(
                Node(self.id, "127.0.0.1", 9092),
                self.incarnation,
                self._store.directory_id.hex(),
            )
        )
        self._catalogue = NodeCatalogue(self._centre, clock, failed, lambda: self.is_reachable)
        self._commits = GroupCommit(asyncio.get_running_loop(), failed)
        rolls = RollDriver(self._catalogue, self._store, self._commits, failed)
        flusher = Flusher(Metrics(), sync=self._commits.request, roll=rolls.roll, fatal=failed)
        self.streams = StreamService(
            self._catalogue,
            self._store,
            flusher,
            clock,
            lambda topic: topic_settings(topic.configs),
            self.id,
            peers=self._network.join(self.id),
        )
        await self.streams.start(self.incarnation)

    def kill(self) -> None:
        """Leave everything as it is; only the locks are gone."""
        self.is_up = False
        self._network.leave(self.id)
        self._catalogue.stop()
        self.streams.close()
        self._commits.close()
        os.close(self._store._lock)
