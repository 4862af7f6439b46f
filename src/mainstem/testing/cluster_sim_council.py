"""The catalogue of ``cluster_sim`` kept by the nodes themselves: real Raft drivers and files."""

import asyncio
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from mainstem.cluster.peers.refusals import Unreachable
from mainstem.cluster.raft.doors_driver import StateMachine
from mainstem.cluster.raft.messages import founding
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.ids import NodeId
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.group_service import GroupPlacementService
from mainstem.testing.raft_cluster import LoopClock, Node, RaftCluster

if TYPE_CHECKING:
    from collections.abc import Callable


class SimCouncil(RaftCluster):
    """A Raft group that is begun, killed and cut off together with the streams of its nodes."""

    def __init__(self, folder: Path, rng: Random, members: tuple[NodeId, ...]) -> None:
        super().__init__(folder, rng)
        self.services: dict[NodeId, GroupPlacementService] = {}
        self.on_restored: dict[NodeId, Callable[[], None]] = {}
        for member in members:
            self.add(member, founding(members))

    @property
    def service(self) -> GroupPlacementService:
        """The catalogue of whoever leads, or of whoever knows most."""
        leader = self.leader()
        if leader is not None:
            return self.services[leader.id]
        up = [node for node in self.nodes.values() if node.driver is not None]
        return max((self.services[node.id] for node in up), key=lambda service: service.next_index)

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
            LoopClock(),
            lambda error: setattr(node, "fatal", error),
            ask=lambda to, data, timeout_s: self._ask(node.id, to, data, timeout_s),
            on_restored=partial(self._restored, node.id),
        )
        return service

    def _restored(self, node: NodeId) -> None:
        tell = self.on_restored.get(node)
        if tell is not None:
            tell()

    async def _ask(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        await asyncio.sleep(self.delay_s)
        if (asker, to) in self.cut or self.nodes[to].driver is None:
            raise Unreachable("cannot be reached")
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self.services[to].decide_for(data)
        except TimeoutError:
            raise Unavailable(ErrorCode.TIMED_OUT, f"node {to} did not answer") from None
        if (to, asker) in self.cut:
            raise Unavailable(ErrorCode.TIMED_OUT, f"the answer of node {to} got lost")
        return answer
