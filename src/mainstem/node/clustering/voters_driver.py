"""Lets the leader of the catalogue's group adjust its membership, one step at a time.

A step that was taken is followed by the next at once; there is a pause only when there is nothing
to do, or when it cannot be done now.
"""

import asyncio
import logging
from typing import Final

from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.cluster.raft.status import RaftStatus
from mainstem.model.clock import Clock
from mainstem.model.errors import MainstemError
from mainstem.model.ids import NodeId
from mainstem.node.clustering.voters import MemberObservations, next_change
from mainstem.placement.changes.commands import AnyFact, NodeRegistered, NodeUnregistered
from mainstem.placement.state.catalogue import Catalogue

PAUSE_S: Final = 0.25
# A voter that does not answer for this long may be replaced.
AWAY_S: Final = 10.0
# An unregistered member without answers is removed after this: it may be about to register.
UNKNOWN_NODE_S: Final = 30.0
# One that is no longer registered is unlikely to return, and a missing voter costs fault tolerance.
UNREGISTERED_S: Final = 3.0

_log = logging.getLogger(__name__)


_SeenAt = dict[NodeId, float]


class VotersDriver:
    """Runs on every node; acts only on the leader."""

    def __init__(self, driver: RaftDriver, catalogue: Catalogue, clock: Clock) -> None:
        self._driver = driver
        self._catalogue = catalogue
        self._clock = clock
        self._seen_s: _SeenAt = {}
        self._unregistered: set[NodeId] = set()

    def on_fact(self, fact: AnyFact) -> None:
        """Note which nodes are registered."""
        match fact:
            case NodeRegistered(node=node):
                self._unregistered.discard(node.id)
            case NodeUnregistered(node=gone):
                self._unregistered.add(gone)
            case _:
                pass

    async def run(self) -> None:
        """Act as long as this node leads, until cancelled."""
        pause_s = PAUSE_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = PAUSE_S
            if not self._driver.state.is_leader:
                self._seen_s.clear()
                continue
            status = self._driver.status
            change = next_change(status, self._watched(status))
            if change is None:
                continue
            try:
                await self._driver.change_membership(change)
            except MainstemError as error:
                _log.debug("the membership of the catalogue's group cannot change now: %s", error)
            else:
                pause_s = 0.0
                _log.info("the catalogue's group: %s of node %d", change.type.name, change.node_id)

    def _watched(self, status: RaftStatus) -> MemberObservations:
        now_s = self._clock.monotonic()
        self._seen_s = {
            member.node_id: now_s
            if member.recently_active
            else self._seen_s.get(member.node_id, now_s)
            for member in status.members
        }
        machines = {known.node.id: known.node.machine for known in self._catalogue.nodes()}
        silent_s = {node: now_s - seen_s for node, seen_s in self._seen_s.items()}
        away = {node for node, silence_s in silent_s.items() if silence_s > AWAY_S}
        gone = [
            node
            for node, silence_s in silent_s.items()
            if node not in machines and silence_s > self._dead_after_s(node)
        ]
        return MemberObservations(machines, away, gone)

    def _dead_after_s(self, node: NodeId) -> float:
        return UNREGISTERED_S if node in self._unregistered else UNKNOWN_NODE_S
