"""The catalogue kept by three nodes: real Raft drivers and files under virtual time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from mainstem.cluster.peers.error_codec import Unreachable
from mainstem.cluster.raft.drivers.interfaces_driver import StateMachine
from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.cluster.raft.messages import Entry, HardState, initial_state
from mainstem.cluster.raft.persistence.snapshot_storage import IncomingSnapshot
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.metadata import Node as Member
from mainstem.placement.changes.commands import AnyFact, CreateTopic, FormCluster, RegisterNode
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.placement.state.catalogue import Catalogue
from mainstem.testing.simulation.raft.group import LoopClock, Node, RaftCluster

FOUNDERS = (NodeId(1), NodeId(2), NodeId(3))


class CatalogueGroup(RaftCluster):
    """A Raft group whose nodes keep a catalogue, and ask each other."""

    def __init__(self, folder: Path, **more: Any) -> None:
        super().__init__(folder, Random(1), **more)
        self.services: dict[NodeId, RaftPlacementService] = {}
        self.facts: dict[NodeId, list[AnyFact]] = {}
        self.restored: list[NodeId] = []
        self.full: set[NodeId] = set()
        self.stalled: set[NodeId] = set()

    def new_machine(self, node: Node) -> StateMachine:
        service = RaftPlacementService(
            Catalogue(),
            LoopClock(),
            lambda error: setattr(node, "fatal", error),
            ask=lambda to, data, timeout_s: self.ask(node.id, to, data, timeout_s),
            on_restored=lambda: self.restored.append(node.id),
        )
        self.services[node.id] = service
        self.facts[node.id] = []
        service.subscribe(self.facts[node.id].append)
        return service

    def start(self, node: Node) -> RaftDriver:
        driver = super().start(node)
        self.services[node.id].attach(driver)
        self._make_faulty(node)
        return driver

    def _make_faulty(self, node: Node) -> None:
        """Let the node's disk refuse or stall while it is named in ``full`` or ``stalled``."""
        real = node.storage.save

        async def save(
            hard_state: HardState | None,
            entries: Sequence[Entry],
            incoming: IncomingSnapshot | None = None,
        ) -> bytes | None:
            while node.id in self.stalled:  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(0.05)
            if node.id in self.full:
                raise Unavailable(ErrorCode.DISK_FULL, "the disk is full")
            return await real(hard_state, entries, incoming)

        node.storage.save = save  # type: ignore[method-assign]

    def others(self, node: Node) -> set[NodeId]:
        """Every node but one."""
        return {each for each in self.nodes if each != node.id}

    async def ask(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        """As ``Peers.ask`` does, with refusals and losses of its own."""
        await asyncio.sleep(0.002)
        if (asker, to) in self.cut or self.nodes[to].driver is None:
            raise Unreachable("cannot be reached")
        acting = asyncio.ensure_future(self.services[to].decide_for(data))
        done, _ = await asyncio.wait({acting}, timeout=timeout_s)
        if not done:  # the other node goes on, whoever has stopped waiting
            acting.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise Unavailable(ErrorCode.TIMED_OUT, f"node {to} did not answer")
        return acting.result()

    async def follower(self) -> Node:
        leader = await self.wait_for_leader()
        found = next(node for node in self.nodes.values() if node is not leader)
        await self.wait_until(lambda: driver_of(found).status.lead == leader.id)
        return found


@asynccontextmanager
async def new_catalogue_group(
    folder: Path, kind: type[CatalogueGroup] = CatalogueGroup, **more: Any
) -> AsyncIterator[CatalogueGroup]:
    """Three nodes that keep a catalogue; none may have failed in the end."""
    catalogue_group = kind(folder, **more)
    for founder in FOUNDERS:
        catalogue_group.start(catalogue_group.add(founder, initial_state(FOUNDERS)))
    yield catalogue_group
    assert all(node.fatal is None for node in catalogue_group.nodes.values())
    await catalogue_group.close()


def driver_of(node: Node) -> RaftDriver:
    assert node.driver is not None
    return node.driver


def topic(number: int, **more: Any) -> CreateTopic:
    return CreateTopic(TopicId(number.to_bytes(16)), f"t{number}", 3, 1, **more)


async def found(catalogue_group: CatalogueGroup) -> RaftPlacementService:
    """A cluster with one registered node; the service of the leader."""
    leader = catalogue_group.services[(await catalogue_group.wait_for_leader()).id]
    await leader.submit(FormCluster("c"))
    await leader.submit(RegisterNode(Member(NodeId(1), "127.0.0.1", 9092), 1, "d", OWN_LEVELS))
    return leader


def names(catalogue_group: CatalogueGroup) -> dict[NodeId, list[str]]:
    return {
        node: [each.name for each in service.catalogue.topics()]
        for node, service in catalogue_group.services.items()
    }
