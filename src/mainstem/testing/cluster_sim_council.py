"""The catalogue of ``cluster_sim`` kept by the nodes themselves: real Raft drivers and files."""

import asyncio
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from mainstem.cluster.peers.refusals import Unreachable
from mainstem.cluster.raft.doors_driver import StateMachine
from mainstem.cluster.raft.messages import EntryType, founding
from mainstem.cluster.raft.storage import RaftStorage
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.ids import NodeId
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.group_service import GroupPlacementService
from mainstem.testing.cluster_sim_clock import SimClock
from mainstem.testing.raft_cluster import Node, RaftCluster

if TYPE_CHECKING:
    from collections.abc import Callable


class SimCouncil(RaftCluster):
    """A Raft group that is begun, killed and cut off together with the streams of its nodes."""

    def __init__(self, folder: Path, rng: Random, members: tuple[NodeId, ...]) -> None:
        super().__init__(folder, rng)
        self.services: dict[NodeId, GroupPlacementService] = {}
        self.on_restored: dict[NodeId, Callable[[], None]] = {}
        self.clocks = {member: SimClock() for member in members}
        for member in members:
            self.add(member, founding(members))

    @property
    def service(self) -> GroupPlacementService:
        """The catalogue of whoever leads, or of whoever knows most."""
        leader = self.leader()
        if leader is not None:
            return self.services[leader.id]
        up = [node.id for node in self.nodes.values() if node.driver is not None]
        known = [self.services[node] for node in up or self.nodes]
        return max(known, key=lambda service: service.next_index)

    def begin(self, node: NodeId) -> GroupPlacementService:
        """A node begins; its door to the catalogue."""
        found = self.nodes[node]
        driver = self.start(found)
        self.services[node].attach(driver)
        return self.services[node]

    def end(self, node: NodeId, *, power: bool) -> None:
        """A node is gone."""
        found = self.nodes[node]
        if found.driver is not None:
            self.kill(found, power_loss=power)

    def new_machine(self, node: Node) -> StateMachine:
        """The catalogue, as one node begins with it."""
        service = self.services[node.id] = GroupPlacementService(
            Catalogue(),
            self.clocks[node.id],
            node.failed,
            ask=lambda to, data, timeout_s: self._ask(node.id, to, data, timeout_s),
            on_restored=partial(self._restored, node.id),
        )
        return service

    def _restored(self, node: NodeId) -> None:
        tell = self.on_restored.get(node)
        if tell is not None:
            tell()

    def states(self) -> dict[NodeId, tuple[int, bytes]]:
        """How far each node that is up has come, and what its catalogue is there."""
        return {
            node: (service.next_index - 1, service.snapshot()())
            for node, service in self.services.items()
            if self.nodes[node].driver is not None
        }

    def state_on_disk(self, node: NodeId, until: int) -> bytes | None:
        """The catalogue that a node's files tell, up to an entry; None: they begin behind it."""
        storage = RaftStorage(self.nodes[node].folder, segment_bytes=2_000)
        durable = storage.open()
        storage.close_now()
        if durable.snapshot.index > until:
            return None
        service = GroupPlacementService(
            Catalogue(), self.clocks[node], raised, ask=partial(self._ask, node)
        )
        service.restore(storage.state)
        for entry in durable.entries:
            is_fact = entry.type is EntryType.EntryNormal and entry.data
            if is_fact and durable.snapshot.index < entry.index <= until:
                service.apply(entry.index, entry.data)
        return service.snapshot()()

    async def _ask(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        await asyncio.sleep(self.delay_s + self.slow.get((asker, to), 0.0))
        if (asker, to) in self.cut or self.nodes[to].driver is None:
            raise Unreachable("cannot be reached")
        deciding = asyncio.get_running_loop().create_task(
            self.services[to].decide_for(data), context=self.nodes[to].context
        )
        deciding.add_done_callback(forget)
        # Whoever decides does not know that nobody waits any more.
        done, _ = await asyncio.wait({deciding}, timeout=timeout_s)
        if not done:
            raise Unavailable(ErrorCode.TIMED_OUT, f"node {to} did not answer")
        await asyncio.sleep(self.slow.get((to, asker), 0.0))
        if (to, asker) in self.cut:
            raise Unavailable(ErrorCode.TIMED_OUT, f"the answer of node {to} got lost")
        return deciding.result()


def raised(error: BaseException) -> None:
    """Nothing may fail there."""
    raise error


def forget(task: "asyncio.Task[bytes]") -> None:
    """Whoever asked may not be there any more to hear what became of it."""
    if not task.cancelled():
        task.exception()
