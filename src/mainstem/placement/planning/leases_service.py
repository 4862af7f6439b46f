"""A node's lease: renewed regularly at the placement leader, granted when this node is it.

The answer also contains orders for the node's streams (``RollOrder``). Guarantees: ``holds`` is
true only while no leader can have declared this node dead without that being known here; a node
that finds a newer process under its id reports that once, and stops renewing.

Between two leases the node may have been replaced, and its catalogue may learn of that much later
than the next lease comes, as when its disk stalls. So a lease after a gap counts once the catalogue
has everything that was decided when it was granted; leases are renewed meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.peers.requests_service import PeerRequester
from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.model.clock import Clock
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, Fenced, MainstemError
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.placement.changes.replication_commands import NodeStatus
from mainstem.placement.planning.leases import OwnLease
from mainstem.placement.planning.reconciler import RollOrder
from mainstem.placement.planning.reconciler_driver import ClusterReconcilerDriver

_log = logging.getLogger(__name__)


class LeaseRenewal(msgspec.Struct, frozen=True, array_like=True):
    """A node requests its next lease."""

    incarnation: int


class LeaseGrant(msgspec.Struct, frozen=True, array_like=True):
    """The lease is granted."""

    lease_ms: int
    status: NodeStatus
    orders: tuple[RollOrder, ...]


_renewals = msgspec.msgpack.Decoder(LeaseRenewal)
_grants = msgspec.msgpack.Decoder(LeaseGrant)


class LeaseHooks(NamedTuple):
    """Callbacks for the contents of answers.

    ``on_orders``: orders for this node's streams; ``on_superseded``: a newer process has
    registered under this node's id.
    """

    on_orders: Callable[[Sequence[RollOrder]], None]
    on_superseded: Callable[[Fenced], None]


class LeasesService:
    """Renews this node's lease and grants leases while it is the placement leader.

    Args:
        node: this node and its incarnation.
        group: this node's member of the catalogue's group, which knows the leader.
        peers: sends requests to the leader.
        placing: grants leases while this node leads.
        clock: the clock.
        hooks: callbacks for the contents of answers.
    """

    def __init__(
        self,
        node: tuple[NodeId, int],
        group: RaftDriver,
        peers: PeerRequester,
        placing: ClusterReconcilerDriver,
        clock: Clock,
        hooks: LeaseHooks,
    ) -> None:
        self._node, self._incarnation = node
        self._group = group
        self._peers = peers
        self._placing = placing
        self._clock = clock
        self._hooks = hooks
        self._lease = OwnLease()
        self._catching_up: asyncio.Task[None] | None = None
        self._is_caught_up = False
        self.status: NodeStatus = "live"

    @property
    def holds(self) -> bool:
        """Whether this node has a lease, so that no other node can write its streams."""
        return self._is_caught_up and self._lease.holds(self._now_ms())

    async def serve(self, node: NodeId, body: memoryview) -> Sequence[Chunk]:
        """Another node renews its lease (the handler of ``PeerService.LEASES``)."""
        try:
            asked = _renewals.decode(body)
        except DECODE_ERRORS as error:
            raise Corrupt(f"not a renewal of a lease: {error}") from error
        return [msgspec.msgpack.encode(await self._grant(node, asked))]

    async def run(self) -> None:
        """Renew until cancelled, or until another process has this node's id."""
        try:
            await self._run()
        finally:
            if self._catching_up is not None:
                self._catching_up.cancel()

    async def _run(self) -> None:
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
                # The next leader is soon known here, and a lease outlasts several attempts.
                _log.debug("no lease: %s", refusal)
                await asyncio.sleep(settings.renew_ms / 3000)
                continue
            if granted is None:
                await self._group.until_led(settings.renew_ms / 1000)
                continue
            if not self._lease.holds(self._now_ms()):
                self._catch_up()
            self._lease.granted(asked_ms, granted.lease_ms)
            self.status = granted.status
            if granted.orders:
                self._hooks.on_orders(granted.orders)
            spent_ms = self._now_ms() - asked_ms
            await asyncio.sleep(max(0, settings.renew_ms - spent_ms) / 1000)

    def _catch_up(self) -> None:
        """A lease comes after a gap: wait until everything decided in it is replayed."""
        self._is_caught_up = False
        if self._catching_up is not None:
            self._catching_up.cancel()  # requested before this gap
        self._catching_up = asyncio.get_running_loop().create_task(self._caught_up())

    async def _caught_up(self) -> None:
        settings = self._placing.settings
        while True:
            try:
                await self._placing.catch_up(settings.lease_ms / 1000)
            except MainstemError as refusal:
                _log.debug("the catalogue may be out of date: %s", refusal)
                await asyncio.sleep(settings.renew_ms / 3000)
            else:
                self._is_caught_up = True
                return

    async def _renew(self, timeout_s: float) -> LeaseGrant | None:
        leader = self._group.state.lead
        self._placing.saw_leader(leader)
        if leader == NO_NODE:
            return None
        renewal = LeaseRenewal(self._incarnation)
        if leader == self._node:
            return await self._grant(self._node, renewal)
        question = msgspec.msgpack.encode(renewal)
        answer = await self._peers.ask(leader, PeerService.LEASES, [question], timeout_s=timeout_s)
        try:
            return _grants.decode(answer)
        except DECODE_ERRORS as error:
            raise Corrupt(f"not a lease: {error}") from error

    async def _grant(self, node: NodeId, asked: LeaseRenewal) -> LeaseGrant:
        return LeaseGrant(*await self._placing.renew(node, asked.incarnation))

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
