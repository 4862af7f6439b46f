"""A node's lease: asked for again and again at the placement leader, answered when this is it.

The answer also says what the node's streams are to do (``RollOrder``). Promises: ``holds`` is true
only while no leader can have taken this node for dead; a node that learns that a newer process has
its name says so once, and stops asking.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from mainstem.cluster.peers.asking_service import Asker
from mainstem.cluster.peers.frames import Chunk, Service
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt, Fenced, MainstemError
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.placement.leases import OwnLease
from mainstem.placement.placing import RollOrder
from mainstem.placement.placing_driver import PlacingDriver
from mainstem.placement.replication_records import NodeStatus

LEADER_PAUSE_S: Final = 0.02
_log = logging.getLogger(__name__)


class Renewal(msgspec.Struct, frozen=True, array_like=True):
    """A node asks for its next lease."""

    incarnation: int


class Granted(msgspec.Struct, frozen=True, array_like=True):
    """It has it."""

    lease_ms: int
    status: NodeStatus
    orders: tuple[RollOrder, ...]


_renewals = msgspec.msgpack.Decoder(Renewal)
_grants = msgspec.msgpack.Decoder(Granted)


class LeaseHooks(NamedTuple):
    """Who is told what the answers say.

    ``on_orders``: what this node's streams are to do; ``on_superseded``: a newer process has
    registered under this node's name.
    """

    on_orders: Callable[[Sequence[RollOrder]], None]
    on_superseded: Callable[[Fenced], None]


class LeasesService:
    """See the module's text.

    Args:
        node: this node and its incarnation.
        leader: who leads the catalogue's group; ``NO_NODE``: nobody is known to.
        peers: how it is asked.
        placing: what answers when this node leads.
        clock: the time.
        hooks: who is told what the answers say.
    """

    def __init__(
        self,
        node: tuple[NodeId, int],
        leader: Callable[[], NodeId],
        peers: Asker,
        placing: PlacingDriver,
        clock: Clock,
        hooks: LeaseHooks,
    ) -> None:
        self._node, self._incarnation = node
        self._leader = leader
        self._peers = peers
        self._placing = placing
        self._clock = clock
        self._hooks = hooks
        self._lease = OwnLease()
        self.status: NodeStatus = "live"

    @property
    def holds(self) -> bool:
        """Whether this node has a lease, so that nobody else can write its streams."""
        return self._lease.holds(self._now_ms())

    async def serve(self, node: NodeId, body: memoryview) -> Sequence[Chunk]:
        """Another node asks (the handler of ``Service.LEASES``)."""
        try:
            asked = _renewals.decode(body)
        except msgspec.DecodeError as error:
            raise Corrupt(f"not a renewal of a lease: {error}") from error
        return [msgspec.msgpack.encode(await self._grant(node, asked))]

    async def run(self) -> None:
        """Renew until cancelled, or until another process has this node's name."""
        settings = self._placing.settings
        while True:
            asked_ms = self._now_ms()
            try:
                granted = await self._renew(settings.lease_ms / 2000)
            except Fenced as refusal:
                self._lease.end()
                self._hooks.on_superseded(refusal)
                return
            except MainstemError as refusal:
                # Whoever leads next is soon known here, and a lease outlasts several tries.
                _log.debug("no lease: %s", refusal)
                await asyncio.sleep(settings.renew_ms / 3000)
                continue
            if granted is None:
                await asyncio.sleep(LEADER_PAUSE_S)
                continue
            self._lease.granted(asked_ms, granted.lease_ms)
            self.status = granted.status
            if granted.orders:
                self._hooks.on_orders(granted.orders)
            spent_ms = self._now_ms() - asked_ms
            await asyncio.sleep(max(0, settings.renew_ms - spent_ms) / 1000)

    async def _renew(self, timeout_s: float) -> Granted | None:
        leader = self._leader()
        self._placing.saw_leader(leader)
        if leader == NO_NODE:
            return None
        renewal = Renewal(self._incarnation)
        if leader == self._node:
            return await self._grant(self._node, renewal)
        question = msgspec.msgpack.encode(renewal)
        answer = await self._peers.ask(leader, Service.LEASES, [question], timeout_s=timeout_s)
        try:
            return _grants.decode(answer)
        except msgspec.DecodeError as error:
            raise Corrupt(f"not a lease: {error}") from error

    async def _grant(self, node: NodeId, asked: Renewal) -> Granted:
        return Granted(*await self._placing.renew(node, asked.incarnation))

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
