"""Cluster tasks of one node of ``simulator``: its lease, and the tasks of a placement leader.

The drivers are those of a real node; the network between them is simulated.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mainstem.cluster.peers.frames import PeerService
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.placement.planning.leases_service import LeaseHooks, LeasesService
from mainstem.placement.planning.reconciler import RollOrder
from mainstem.placement.planning.reconciler_driver import ClusterReconcilerDriver
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.streams.failover.writer_freshness import keep_fresh
from mainstem.streams.service import StreamService
from mainstem.testing.simulation.peer_network import NetworkPeers
from mainstem.testing.simulation.raft.group import Node

LAPSED: Final = Unavailable(ErrorCode.NOT_WRITER, "this node's lease has ended")


class SimNodeTasks:
    """Runs the lease and the placement driver of a simulated node.

    Args:
        member: this node in the catalogue's group.
        service: its placement service.
        clock: the node's clock.
        failed: called with an error that ends the node.
    """

    def __init__(
        self,
        member: Node,
        service: RaftPlacementService,
        clock: Clock,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._member = member
        self._service = service
        self._clock = clock
        self._failed = failed
        self._tasks: list[asyncio.Task[None]] = []
        self._leases: LeasesService
        self._streams: StreamService

    def begin(self, peers: NetworkPeers, incarnation: int, streams: StreamService) -> None:
        """Start to request leases, and to run the placement driver while this node leads."""
        clock = self._clock
        self._streams = streams
        placing = ClusterReconcilerDriver(self._service, self._led_term, clock)
        self._member.on_role = placing.wake
        hooks = LeaseHooks(on_orders=self._roll, on_superseded=self._failed)
        group = self._member.driver
        assert group is not None, "a node that is up"
        self._leases = LeasesService(
            (self._member.id, incarnation), group, peers, placing, clock, hooks
        )
        peers.serve(PeerService.LEASES, self._leases.serve)
        loop = asyncio.get_running_loop()
        for coroutine in (placing.run(), self._leases.run()):
            task = loop.create_task(coroutine)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def keep_fresh(self) -> None:
        """Make the open streams refuse possibly outdated answers while the node has no lease."""

        def lapsed() -> MainstemError | None:
            return None if self._leases.holds else LAPSED

        self._streams.table.watch(
            partial(keep_fresh, holds_lease=lambda: self._leases.holds), lambda _: None
        )
        self._streams.set_lapsed_check(lapsed)

    def end(self) -> None:
        """Stop the tasks: the node has ended."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def _led_term(self) -> int | None:
        driver = self._member.driver
        return None if driver is None else driver.state.led_term

    def _roll(self, orders: Sequence[RollOrder]) -> None:
        for order in orders:
            known = self._service.catalogue.stream(order.stream)
            if known is not None and (known.epoch, known.last.index) == (order.epoch, order.index):
                self._streams.roll(order.stream, new_writer=order.new_writer)
