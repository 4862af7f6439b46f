"""The catalogue of ``simulator``, replicated by its nodes: real Raft drivers and files."""

import asyncio
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mainstem.cluster.peers.connection_transport import too_large
from mainstem.cluster.peers.error_codec import Unreachable
from mainstem.cluster.peers.frames import PeerService
from mainstem.cluster.raft.drivers.interfaces_driver import DriverSettings, StateMachine
from mainstem.cluster.raft.messages import EntryType, SoftState, initial_state
from mainstem.cluster.raft.persistence.raft_storage import RaftStorage
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.features import LEVELS_OF_0_1, OWN_LEVELS, Levels
from mainstem.model.ids import NodeId
from mainstem.model.limits import KIB, MIB
from mainstem.placement.changes.commands import NodeRegistered
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.placement.state.catalogue import Catalogue
from mainstem.testing.simulation.cluster.clock import SimClock
from mainstem.testing.simulation.cluster.levels import (
    CheckedPlacementService,
    LevelChecker,
    OldCatalogue,
    comparable,
)
from mainstem.testing.simulation.raft.group import Node, RaftCluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.node.clustering.levels_driver import LevelsDriver


# A batch is copied in pieces of 4 MiB; entries of the catalogue are bounded as on a real node, far
# below a frame, and small enough that scenarios can send larger ones.
FRAME_BYTES_MAX: Final = 5 * MIB
ENTRY_BYTES_MAX: Final = 256 * KIB


class SimCatalogueGroup(RaftCluster):
    """A Raft group whose members are started, killed and isolated together with their nodes."""

    def __init__(
        self, folder: Path, rng: Random, members: tuple[NodeId, ...], judge: LevelChecker | None
    ) -> None:
        settings = DriverSettings(entry_bytes_max=ENTRY_BYTES_MAX)
        if judge is not None:  # snapshots are frequent, since those of release 0.1 lack fields
            settings = replace(settings, snapshot_entries=100, keep_entries=20)
        super().__init__(folder, rng, settings=settings)
        self._judge = judge
        self.levels: dict[
            NodeId, Levels
        ] = {}  # what each node reads, in a scenario of two releases
        self.announcing: dict[NodeId, LevelsDriver] = {}
        self.on_role = self._notify_role
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.unsent: list[MainstemError] = []  # messages of Raft that were too large
        self.services: dict[NodeId, RaftPlacementService] = {}
        self.on_restored: dict[NodeId, Callable[[], None]] = {}
        self.clocks = {member: SimClock() for member in members}
        for member in members:
            self.add(member, initial_state(members))

    @property
    def service(self) -> RaftPlacementService:
        """The placement service of the leader, or of the node with the longest applied log."""
        leader = self.leader()
        if leader is not None:
            return self.services[leader.id]
        up = [node.id for node in self.nodes.values() if node.driver is not None]
        known = [self.services[node] for node in up or self.nodes]
        return max(known, key=lambda service: service.next_index)

    @property
    def level(self) -> int:
        """The highest level of ``mainstem.version`` that any node has applied."""
        return OWN_LEVELS[1] if self._judge is None else self._judge.level

    def begin(self, node: NodeId) -> RaftPlacementService:
        """Start a node; returns its placement service."""
        found = self.nodes[node]
        driver = self.start(found)
        self.services[node].attach(driver)
        return self.services[node]

    def end(self, node: NodeId, *, power: bool) -> None:
        """Kill a node."""
        found = self.nodes[node]
        if found.driver is not None:
            self.kill(found, power_loss=power)

    def new_machine(self, node: Node) -> StateMachine:
        """The initial catalogue of one node."""
        judge, levels = self._judge, self.levels.get(node.id, OWN_LEVELS)
        kind = RaftPlacementService if judge is None else partial(CheckedPlacementService, judge)
        service = self.services[node.id] = kind(
            OldCatalogue() if levels == LEVELS_OF_0_1 else Catalogue(),
            self.clocks[node.id],
            node.failed,
            ask=lambda to, data, timeout_s: self._ask(node.id, to, data, timeout_s),
            on_restored=partial(self._restored, node.id),
        )
        return service

    def _notify_role(self, node: NodeId, role: SoftState) -> None:
        announcing = self.announcing.get(node)
        if announcing is not None:
            announcing.on_role(role)

    def _restored(self, node: NodeId) -> None:
        notify = self.on_restored.get(node)
        if notify is not None:
            notify()

    def states(self) -> dict[NodeId, tuple[int, bytes]]:
        """The applied index of each running node, and its catalogue at that index."""
        return {
            node: (service.next_index - 1, self._comparable(service))
            for node, service in self.services.items()
            if self.nodes[node].driver is not None
        }

    def ignored(self) -> dict[NodeId, dict[str, int]]:
        """Facts that did not apply when they were replayed, by node: leaders must not decide such.

        With two releases nodes do not store the same levels, so that a leader may record levels
        again that only itself lacks.
        """
        expected = set() if self._judge is None else {NodeRegistered.__name__}
        found = {
            node: {kind: count for kind, count in ignored.items() if kind not in expected}
            for node, service in self.services.items()
            if (ignored := service.catalogue.ignored)
        }
        return {node: ignored for node, ignored in found.items() if ignored}

    def state_on_disk(self, node: NodeId, until: int) -> bytes | None:
        """The catalogue in a node's files up to an entry; None if they start after it."""
        storage = RaftStorage(self.nodes[node].folder, segment_bytes=2_000)
        durable = storage.open()
        storage.close_now()
        if durable.snapshot.index > until:
            return None
        service = RaftPlacementService(
            Catalogue(), self.clocks[node], raised, ask=partial(self._ask, node)
        )
        service.restore(storage.state)
        for entry in durable.entries:
            is_fact = entry.type is EntryType.EntryNormal and entry.data
            if is_fact and durable.snapshot.index < entry.index <= until:
                service.apply(entry.index, entry.data)
        return self._comparable(service)

    def _comparable(self, service: RaftPlacementService) -> bytes:
        state = service.snapshot()()
        return state if self._judge is None else comparable(state)

    def carry(self, from_: NodeId, to: NodeId, data: bytes) -> None:
        """Send a message, unless it is larger than a frame."""
        if len(data) > self.frame_bytes_max:
            self.unsent.append(too_large(PeerService.RAFT, len(data), self.frame_bytes_max))
            return
        super().carry(from_, to, data)

    async def _ask(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        if len(data) > self.frame_bytes_max:
            raise too_large(PeerService.CATALOGUE, len(data), self.frame_bytes_max)
        await asyncio.sleep(self.delay_s + self.slow.get((asker, to), 0.0))
        if (asker, to) in self.cut or self.nodes[to].driver is None:
            raise Unreachable("cannot be reached")
        deciding = asyncio.get_running_loop().create_task(
            self.services[to].decide_for(data), context=self.nodes[to].context
        )
        deciding.add_done_callback(forget)
        # The deciding node is not notified when the requester stops waiting.
        done, _ = await asyncio.wait({deciding}, timeout=timeout_s)
        if not done:
            raise Unavailable(ErrorCode.TIMED_OUT, f"node {to} did not answer")
        await asyncio.sleep(self.slow.get((to, asker), 0.0))
        if (to, asker) in self.cut:
            raise Unavailable(ErrorCode.TIMED_OUT, f"the answer of node {to} got lost")
        return deciding.result()


def raised(error: BaseException) -> None:
    """Raise any error: none is expected."""
    raise error


def forget(task: "asyncio.Task[bytes]") -> None:
    """Retrieve the exception of a task whose requester may have stopped waiting."""
    if not task.cancelled():
        task.exception()
