"""One node of ``cluster_sim``: the streams of a real node on real files, killed and begun anew."""

import asyncio
import os
import shutil
from pathlib import Path

from mainstem.log.group_commit import GroupCommit
from mainstem.log.range_log import RangeLog
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
        self._boots = 0
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

        self._store = LogStore(self._folder, StoreSettings(boot_id=f"boot {self._boots}"), clock)
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

    def kill(self, *, power: bool = False) -> None:
        """Leave everything as it is; only the locks are gone.

        Args:
            power: the machine loses its power, and what was not synced.
        """
        self.is_up = False
        if power:
            self._boots += 1
            for log in self._store.logs.values():
                _lose_unsynced(log)
        self._network.leave(self.id)
        self._catalogue.stop()
        self.streams.close()
        self._commits.close()
        os.close(self._store._lock)


def _lose_unsynced(log: RangeLog) -> None:
    """What a power loss leaves of the files of a range."""
    if log.sealed or log.closed:
        return
    if not log.directory_synced:
        shutil.rmtree(log.directory, ignore_errors=True)
        return
    _, base, position = log.synced_place
    for segment in log.segments:
        if segment.base_offset > base:
            for suffix in (".log", ".index", ".timeindex"):
                segment.path.with_suffix(suffix).unlink(missing_ok=True)
        elif segment.base_offset == base:
            os.truncate(segment.path, position)
