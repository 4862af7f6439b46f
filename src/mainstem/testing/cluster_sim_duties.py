"""What one node of ``cluster_sim`` does for the cluster: its lease, and a leader's duties.

The drivers are those of a real node (``node/duties``); the network between them is the story's.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from mainstem.cluster.peers.frames import Service
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.placement.group_service import GroupPlacementService
from mainstem.placement.leases_service import LeaseHooks, LeasesService
from mainstem.placement.placing import RollOrder
from mainstem.placement.placing_driver import PlacingDriver
from mainstem.streams.freshness import keep_fresh
from mainstem.streams.service import StreamService
from mainstem.testing.peer_network import NetworkPeers
from mainstem.testing.raft_cluster import Node

LAPSED: Final = Unavailable(ErrorCode.NOT_WRITER, "this node's lease has ended")


class SimDuties:
    """See the module's text.

    Args:
        member: this node in the catalogue's group.
        service: its door to the catalogue.
        clock: the node's.
        failed: told what ends the node.
    """

    def __init__(
        self,
        member: Node,
        service: GroupPlacementService,
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
        """Ask for leases from now on, and lead whenever this node is to."""
        clock = self._clock
        self._streams = streams
        placing = PlacingDriver(self._service, self._led_term, clock)
        self._member.on_role = placing.wake
        hooks = LeaseHooks(on_orders=self._roll, on_superseded=self._failed)
        self._leases = LeasesService(
            (self._member.id, incarnation), self._leader, peers, placing, clock, hooks
        )
        peers.serve(Service.LEASES, self._leases.serve)
        loop = asyncio.get_running_loop()
        for duty in (placing.run(), self._leases.run()):
            task = loop.create_task(duty)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def keep_fresh(self) -> None:
        """Streams are open: without a lease they answer nothing that may be out of date."""

        def lapsed() -> MainstemError | None:
            return None if self._leases.holds else LAPSED

        self._streams.watch(
            partial(keep_fresh, holds_lease=lambda: self._leases.holds), lambda _: None
        )
        self._streams.lapse(lapsed)

    def end(self) -> None:
        """The node is gone."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def _leader(self) -> NodeId:
        driver = self._member.driver
        return NO_NODE if driver is None else driver.state.lead

    def _led_term(self) -> int | None:
        driver = self._member.driver
        return None if driver is None else driver.state.led_term

    def _roll(self, orders: Sequence[RollOrder]) -> None:
        for order in orders:
            known = self._service.catalogue.stream(order.stream)
            if known is not None and (known.epoch, known.last.index) == (order.epoch, order.index):
                self._streams.roll(order.stream, new_writer=order.new_writer)
