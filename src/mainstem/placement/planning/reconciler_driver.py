"""Runs the placement driver on the node that leads the catalogue's group.

    every turn: leases that have ended ──▶ FenceNode ──▶ other commands (``ClusterReconciler``)

Every node runs one; only the leader's acts. Its results are submitted as commands, which the
catalogue checks again; orders to a writer are sent to its node with the next renewal. A node
that is late is checked: if its machine reports that no process listens there,
its lease need not be waited for.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from mainstem.cluster.raft.core import NotLeader
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, Fenced, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.replication_commands import FenceNode, NodeStatus, UnfenceNode
from mainstem.placement.planning.leases import NORMAL, LeaseSettings, LeaseTable
from mainstem.placement.planning.reconciler import ClusterReconciler, RollOrder
from mainstem.placement.service import PlacementService

RECONCILE_PAUSE_MS: Final = 500
TURNS_PER_RENEWAL: Final = 3

_log = logging.getLogger(__name__)


IsRefused = Callable[[NodeId], Awaitable[bool]]


async def _is_unknown(node: NodeId) -> bool:
    """Default check: no result, so the lease is waited for."""
    del node
    return False


class RenewedLease(NamedTuple):
    """A lease of ``lease_ms`` from the time of the request."""

    lease_ms: int
    status: NodeStatus
    orders: tuple[RollOrder, ...]


class ClusterReconcilerDriver:
    """Runs the placement driver on the node that leads the catalogue.

    Args:
        placement: the placement service.
        led_term: the term in which this node leads the group; None: it does not lead.
        clock: the clock.
        settings: lengths of leases.
        placing: plans everything besides fencing.
        is_refused: whether a node's machine reports that no process listens there.
    """

    def __init__(
        self,
        placement: PlacementService,
        led_term: Callable[[], int | None],
        clock: Clock,
        settings: LeaseSettings = NORMAL,
        placing: ClusterReconciler | None = None,
        *,
        is_refused: IsRefused = _is_unknown,
    ) -> None:
        self._placement = placement
        self._led_term = led_term
        self._clock = clock
        self.settings = settings
        self._leases = LeaseTable(settings)
        self._placing = placing or ClusterReconciler()
        self._is_refused = is_refused
        self._term: int | None = None
        self._orders: dict[NodeId, list[RollOrder]] = {}
        self._up: dict[NodeId, int] = {}
        self._place_ms = 0
        self._confirmed_ms = -1
        self._former = NO_NODE
        self._missed: set[NodeId] = set()
        self._woken = asyncio.Event()
        self._role_changed = asyncio.Event()

    async def run(self) -> None:
        """Act while this node leads, until cancelled."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._take_turns())
            both.create_task(self._confirm())

    def saw_leader(self, leader: NodeId) -> None:
        """Record the current leader, ``NO_NODE`` if there is none, as this node's predecessor."""
        if leader != NO_NODE and self._term is None:
            self._former = leader

    def gone(self, node: NodeId) -> None:
        """The process of a node seems to have ended: the current or next leader checks at once."""
        self._missed.add(node)
        self._woken.set()

    def wake(self) -> None:
        """The leader has changed: do not wait for the next turn."""
        self._woken.set()
        self._role_changed.set()

    async def catch_up(self, timeout_s: float) -> None:
        """Return once this node's catalogue has all that was decided before the call.

        Raises:
            Unavailable: that was not confirmed in time.
        """
        await self._placement.confirm(timeout_s)

    async def renew(self, node: NodeId, incarnation: int) -> RenewedLease:
        """Grant a node its next lease: the length, and orders for its streams.

        Raises:
            NotLeader: this node does not lead.
            Fenced: a newer process of that node has registered.
            Unavailable: the requester is not in this node's catalogue yet, or it is unknown whether
                this node still leads.
        """
        if not self._leads():
            raise NotLeader(NO_NODE)
        known = self._placement.catalogue.node(node)
        if known is None or known.incarnation < incarnation:
            raise Unavailable(ErrorCode.TIMED_OUT, f"node {node} is not registered here yet")
        if known.incarnation > incarnation:
            raise Fenced(
                ErrorCode.FENCED_EPOCH,
                f"incarnation {incarnation} is not the current one, {known.incarnation}",
                subject=f"node {node}",
            )
        lease_ms = self._confirmed_ms + self.settings.lease_ms - self._now_ms()
        if lease_ms <= 0:
            raise Unavailable(ErrorCode.TIMED_OUT, "too few nodes confirm that this node leads")
        self._leases.renew(node, self._now_ms())
        self._missed.discard(node)
        if known.fenced:
            await self._placement.submit(UnfenceNode(node, incarnation))
            self._leases.renew(node, self._now_ms())
        fresh = self._placement.catalogue.node(node) or known
        return RenewedLease(lease_ms, fresh.status, tuple(self._orders.pop(node, ())))

    # Inside.

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _leads(self) -> bool:
        term = self._led_term()
        if term is not None and term != self._term:
            nodes = self._placement.catalogue.nodes()
            self._up = {k.node.id: k.incarnation for k in nodes if not k.fenced}
            self._leases.begin(self._up, self._now_ms(), self._former)
            self._confirmed_ms = -1
            self._placing.begin()
            self._orders.clear()
        self._term = term
        return term is not None

    async def _take_turns(self) -> None:
        pause_s = self.settings.renew_ms / TURNS_PER_RENEWAL / 1000
        while True:
            # A node that does not lead has nothing to do until that changes.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s if self._leads() else None):
                    await self._woken.wait()
            self._woken.clear()
            if self._leads():
                await self._turn()

    async def _confirm(self) -> None:
        """Confirm regularly with a majority that this node still leads."""
        pause_s = self.settings.renew_ms / TURNS_PER_RENEWAL / 1000
        while True:
            await asyncio.sleep(pause_s)
            while not self._leads():
                self._role_changed.clear()
                await self._role_changed.wait()
            asked_ms, term = self._now_ms(), self._term
            try:
                await self._placement.confirm(self.settings.lease_ms / 1000)
            except Unavailable as refusal:
                _log.info("this node's leadership is not confirmed: %s", refusal)
                continue
            # A confirmation that outlasts the term is the next leader's.
            if self._leads() and self._term == term:
                self._confirmed_ms = asked_ms

    async def _turn(self) -> None:
        catalogue = self._placement.catalogue
        up = {k.node.id: k.incarnation for k in catalogue.nodes() if not k.fenced}
        # A node that returned or is new has a first lease; that of the process before is over.
        for node in self._up.keys() | up.keys():
            if self._up.get(node) != up.get(node):
                self._leases.forget(node)
        self._up = up
        lapsed = self._leases.lapsed(up, self._now_ms())
        for node in lapsed:
            _log.warning("node %d did not renew its lease and is declared dead", node)
        missed = self._missed.union(self._leases.late(up, self._now_ms()))
        self._missed.clear()
        late = [n for n in up if n in missed and n not in lapsed]
        gone = await asyncio.gather(*map(self._is_refused, late))
        for node in itertools.compress(late, gone):
            _log.warning("the process of node %d has ended: it is declared dead", node)
            lapsed.append(node)
        await self._submit([FenceNode(n, up[n], "it is gone") for n in lapsed])
        now_ms = self._now_ms()
        if not lapsed and now_ms < self._place_ms:
            return
        self._place_ms = now_ms + RECONCILE_PAUSE_MS
        steps = self._placing.step(catalogue, now_ms)
        for node, orders in steps.orders.items():
            self._orders[node] = orders
        await self._submit(steps.commands)

    async def _submit(self, commands: Sequence[Command[Any]]) -> None:
        """Submit all at once; refused ones are planned again in the next turn."""
        answers = await asyncio.gather(
            *map(self._placement.submit, commands), return_exceptions=True
        )
        for command, answer in zip(commands, answers, strict=True):
            if isinstance(answer, MainstemError):
                _log.info("%s was refused: %s", type(command).__name__, answer)
            elif isinstance(answer, BaseException):
                raise answer
