"""This node's gossip: over UDP on its peer port, and as requests over peer connections.

Nodes exchange their addresses, load and state. All of it is hints: an address is tried, an
unresponsive node is probed at once, and operators see which nodes are reachable. Leases decide
which nodes are dead. Guarantee: a node that cannot gossip logs that and works all the same.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Final

from msgspec.structs import replace

from mainstem.cluster.gossip.cipher import GossipCipher
from mainstem.cluster.gossip.driver import Gossip
from mainstem.cluster.gossip.member import (
    Address,
    Claim,
    GossipState,
    MemberChange,
    SelfDescription,
)
from mainstem.cluster.gossip.settings import FAST, GossipSettings
from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.peers.service import Peers
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt, MainstemError, Unavailable
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.node.clustering.address_book import AddressBook
from mainstem.placement.state.cluster_view import GossipStatus, Seen

STREAM_TIMEOUT_S: Final = 5.0
MEET_PAUSE_S: Final = 2.0
LOAD_PAUSE_S: Final = 5.0
# Smaller differences of load are not announced.
LOAD_STEP: Final = 0.05
CPU: Final = "cpu"
# The unit of load that placement sees: quarters of a core, so that it seldom changes.
BUSY_STEPS_PER_CORE: Final = 4
BUSY_MAX: Final = 8

_SEEN: Final[dict[GossipState, Seen]] = {
    GossipState.ALIVE: "alive",
    GossipState.SUSPECT: "suspected",
    GossipState.DEAD: "dead",
    GossipState.LEFT: "left",
}
_log = logging.getLogger(__name__)


class GossipExchanges:
    """Gossip exchanges as requests to other nodes, so that one port serves both.

    Args:
        peers: sends requests to them.
        seal: authenticates messages with the cluster's secret.
        answer: computes the answer to a request.
    """

    def __init__(self, peers: Peers, seal: GossipCipher, answer: Callable[[bytes], bytes]) -> None:
        self._peers = peers
        self._seal = seal
        self._answer = answer

    async def listen(self, host: str, port: int) -> Address:
        """Answer requests from now on; the node listens already."""
        self._peers.serve(PeerService.GOSSIP, self._serve)
        return Address(host, port)

    async def ask(self, address: Address, question: bytes) -> bytes:
        """The answer to a request."""
        try:
            answer = await self._peers.ask_at(
                address, PeerService.GOSSIP, [self._seal.seal(question)], timeout_s=STREAM_TIMEOUT_S
            )
        except Corrupt:
            raise
        except MainstemError as error:
            raise ConnectionError(str(error)) from error
        return self._seal.open(bytes(answer))

    def close(self) -> None:
        """Nothing to close: peer connections are closed by their owner."""

    async def _serve(self, _: NodeId, body: memoryview) -> Sequence[Chunk]:
        return [self._seal.seal(self._answer(self._seal.open(bytes(body))))]


class NodeGossip:
    """Runs gossip over UDP and over the connections between nodes.

    Args:
        peers: the connections to other nodes.
        addresses: their addresses.
        clock: the time.
    """

    def __init__(self, peers: Peers, addresses: AddressBook, clock: Clock) -> None:
        self._peers = peers
        self._addresses = addresses
        self._clock = clock
        self._settings = GossipSettings()
        self._gossip: Gossip | None = None
        self._seal: GossipCipher | None = None

    async def start(
        self, cluster: str, secrets: tuple[bytes, ...], node: Node, directory: str, bind_host: str
    ) -> None:
        """Start gossip."""
        seal = GossipCipher(cluster, secrets, os.urandom)
        peers = self._peers
        gossip = Gossip(
            seal,
            self._clock,
            self._changed,
            lambda seal, answer, _: GossipExchanges(peers, seal, answer),
        )
        address = Address(node.peer_host, node.peer_port)
        born_ms = self._clock.wall_ms()  # outranks statements about the previous process
        about = SelfDescription(
            address,
            broker_epoch=born_ms,
            rack=node.rack or "",
            machine=node.machine,
            directories=(directory,),
            endpoints=(("kafka", node.host, node.port),),
        )
        own = Claim(node.id, born_ms, GossipState.ALIVE, node.id, about)
        try:
            bind = Address(bind_host, node.peer_port)
            await gossip.start(own, self._settings, random.random, bind=bind)
        except OSError as error:
            _log.warning("no gossip, UDP port %d cannot be used: %s", node.peer_port, error)
            return
        self._gossip, self._seal = gossip, seal

    def probe_soon(self) -> None:
        """Use shorter time-outs, for networks and disks that never stall."""
        self._settings = FAST

    def know(self, secrets: tuple[bytes, ...]) -> None:
        """Use the changed secrets of the cluster."""
        if self._seal is not None:
            self._seal.know(secrets)

    def works(
        self, meet: Callable[[], Sequence[tuple[str, int]]]
    ) -> Sequence[Coroutine[None, None, None]]:
        """Run until cancelled; ``meet``: addresses, known or possible, of other nodes."""
        gossip = self._gossip
        return [] if gossip is None else [_find_others(gossip, meet), self._send_load(gossip)]

    def seen(self, node: NodeId) -> GossipStatus:
        """The state of a node according to gossip."""
        if self._gossip is None:
            return GossipStatus("unknown", None)
        members_table = self._gossip.swim.members_table
        member = members_table.get(node)
        claim = (
            members_table.own
            if node == members_table.own.node
            else None
            if member is None
            else member.claim
        )
        if claim is None:
            return GossipStatus("unknown", None)
        return GossipStatus(_SEEN[claim.state], dict(claim.about.load).get(CPU))

    def busy(self, node: NodeId) -> int:
        """How loaded a node is, in coarse steps; 0 where that is not known."""
        share = self.seen(node).cpu
        return 0 if share is None else min(BUSY_MAX, int(share * BUSY_STEPS_PER_CORE))

    async def close(self) -> None:
        """Announce that this node leaves, and stop."""
        if self._gossip is not None:
            await self._gossip.close()

    # Internals.

    def _changed(self, change: MemberChange) -> None:
        claim = change.after
        if claim.state is GossipState.ALIVE:
            # Only the node itself announces its address; it may have moved since it registered.
            self._addresses.put(claim.node, (claim.about.address.host, claim.about.address.port))
        elif claim.state is not GossipState.LEFT:
            # On a busy machine suspicions come and go; only a node's death is logged at INFO.
            is_dead = claim.state is GossipState.DEAD
            level = logging.INFO if is_dead else logging.DEBUG
            _log.log(level, "node %d is %s", claim.node, _SEEN[claim.state])
            self._peers.watcher.disconnected(claim.node)

    async def _send_load(self, gossip: Gossip) -> None:
        sent = -1.0
        cpu_s, at_s = time.process_time(), self._clock.monotonic()
        while True:
            await asyncio.sleep(LOAD_PAUSE_S)
            spent_s, now_s = time.process_time(), self._clock.monotonic()
            share = round((spent_s - cpu_s) / max(now_s - at_s, 0.001), 2)
            cpu_s, at_s = spent_s, now_s
            if abs(share - sent) >= LOAD_STEP:
                sent = share
                own = gossip.swim.members_table.own
                gossip.announce(replace(own.about, load=((CPU, share),)))


async def _find_others(gossip: Gossip, meet: Callable[[], Sequence[tuple[str, int]]]) -> None:
    while True:
        known = {member.address for member in gossip.swim.members_table}
        unknown = [each for at in meet() if (each := Address(*at)) not in known]
        if unknown:
            try:
                await gossip.join(unknown)
            except Unavailable as error:
                _log.debug("%s", error)
        await asyncio.sleep(MEET_PAUSE_S)
