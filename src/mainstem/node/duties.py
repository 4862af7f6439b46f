"""What a node does for the cluster as long as it runs: its lease, and the leader's placing.

Streams follow the catalogue by themselves and coordinators follow the streams; here are the ends
of the lines between nodes, and the order in which a node that stops gives away what it has.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from mainstem.broker.admin import TopicsAdmin
from mainstem.broker.api import Streams
from mainstem.cluster.peers.frames import Service
from mainstem.coordination.elsewhere_runtime import ClusterMarkers, Elsewhere
from mainstem.coordination.markers_runtime import Markers
from mainstem.coordination.partitions import OFFSETS_TOPIC
from mainstem.coordination.runtime import GroupsRuntime
from mainstem.coordination.shards_runtime import InternalTopic, Shards
from mainstem.coordination.transactions_runtime import TransactionsRuntime
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NodeId, StreamId
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC
from mainstem.node.any_node import AnyNodeStreams
from mainstem.node.cluster import ClusterNode
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.electing import successor
from mainstem.placement.leases import PRESETS
from mainstem.placement.leases_service import LeaseHooks, LeasesService
from mainstem.placement.placing import RollOrder
from mainstem.placement.placing_driver import PlacingDriver
from mainstem.placement.replication_records import STOPPED, FenceNode
from mainstem.streams.freshness import keep_fresh
from mainstem.streams.service import StreamService
from mainstem.streams.surroundings import PeerCalls
from mainstem.streams.writer_driver import StreamWriter

HAND_OVER_S: Final = 3.0
FAREWELL_S: Final = 1.0
# How long a machine has to say that no process takes connections there.
LOOK_S: Final = 0.3
_log = logging.getLogger(__name__)

Fatal = Callable[[BaseException], None]


_Keepers = dict[str, Shards[Any, Any]]


def writer_of(catalogue: Catalogue, topic: str, partition: int) -> NodeId:
    """Who writes a partition; nobody: ``NO_NODE``.

    Raises:
        InvalidRequest: there is no such partition.
    """
    found = catalogue.topic(topic)
    if found is None or not 0 <= partition < len(found.streams):
        raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=f"{topic}-{partition}")
    return found.streams[partition].writer


def internal_topic(topics: TopicsAdmin, streams: StreamService, name: str) -> InternalTopic:
    """How the coordinators of a node reach one of the house's own topics."""
    return InternalTopic(
        ensure=partial(topics.ensure_internal, name),
        open_stream=partial(streams.door, name),
        partition_count=topics.partition_count,
    )


def markers(cluster: ClusterNode | None, streams: StreamService, groups: GroupsRuntime) -> Markers:
    """How transactions end in partitions, here or on other nodes."""
    if cluster is None:
        return Markers(streams.door, groups.positions)
    catalogue = cluster.service.catalogue
    return ClusterMarkers(
        streams.door,
        groups.positions,
        node=cluster.node,
        peers=cluster.peers,
        writer_of=lambda topic, partition: writer_of(catalogue, topic, partition),
    )


def reach_coordinators(
    node: NodeId,
    peers: PeerCalls,
    catalogue: Catalogue,
    transactions: TransactionsRuntime,
    marking: ClusterMarkers,
) -> None:
    """Let the coordinators of transactions on several nodes ask each other."""

    def coordinator_of(transactional_id: str) -> NodeId:
        if catalogue.topic(TRANSACTION_STATE_TOPIC) is None:
            return node
        partition = transactions.coordinator_partition(transactional_id)
        return writer_of(catalogue, TRANSACTION_STATE_TOPIC, partition)

    transactions.elsewhere = Elsewhere(node, peers, marking, coordinator_of, transactions)
    peers.serve(Service.MARKERS, transactions.elsewhere.serve)


def follow_streams(
    streams: StreamService, groups: GroupsRuntime, transactions: TransactionsRuntime
) -> None:
    """Coordinators are where the streams of their internal topics are written."""
    keepers: _Keepers = {
        OFFSETS_TOPIC: groups.shards,
        TRANSACTION_STATE_TOPIC: transactions.shards,
    }
    kept: dict[StreamId, str] = {}

    def opened(stream: StreamWriter) -> None:
        if stream.topic in keepers:
            kept[stream.id] = stream.topic
            keepers[stream.topic].opened(stream.id.partition)

    def closed(stream: StreamId) -> None:
        topic = kept.pop(stream, None)
        if topic is not None:
            keepers[topic].closed(stream.partition)

    streams.watch(opened, closed)


def any_node_streams(cluster: ClusterNode | None, streams: StreamService) -> Streams:
    """The streams as protocols see them, with appends for those that other nodes write."""
    if cluster is None:
        return streams
    catalogue = cluster.service.catalogue
    made = AnyNodeStreams(
        streams,
        cluster.node,
        cluster.peers,
        lambda topic, partition: writer_of(catalogue, topic, partition),
    )
    cluster.peers.serve(Service.REQUESTS, made.serve)
    return made


class Duties:
    """What this node does for the cluster.

    Args:
        cluster: this node among nodes.
        incarnation: under which it registered.
        streams: the streams that it writes.
    """

    def __init__(self, cluster: ClusterNode, incarnation: int, streams: StreamService) -> None:
        self._cluster = cluster
        self._incarnation = incarnation
        self._streams = streams
        self._tasks: list[asyncio.Task[None]] = []
        self._is_leaving = False
        self.leases: LeasesService

    def begin(self, clock: Clock, preset: str, on_fatal: Fatal) -> None:
        """Ask for leases from now on, and do what a leader does whenever this node leads.

        Before streams are opened: that may take longer than a lease lasts.
        """
        cluster = self._cluster
        placing = PlacingDriver(
            cluster.service,
            lambda: cluster.driver.state.led_term,
            clock,
            PRESETS[preset],
            is_refused=lambda node: cluster.peers.is_refused(node, timeout_s=LOOK_S),
        )
        self.leases = LeasesService(
            (cluster.node, self._incarnation),
            lambda: cluster.driver.state.lead,
            cluster.peers,
            placing,
            clock,
            LeaseHooks(on_orders=self._roll, on_superseded=on_fatal),
        )
        cluster.peers.serve(Service.LEASES, self.leases.serve)
        cluster.peers.lookout.on_gone.append(placing.gone)
        cluster.on_role.append(lambda _: placing.wake())
        loop = asyncio.get_running_loop()
        for duty in (placing.run(), self.leases.run()):
            task = loop.create_task(duty)
            task.add_done_callback(lambda ended: _tell_failure(ended, on_fatal))
            self._tasks.append(task)

    def connect(
        self, groups: GroupsRuntime, transactions: TransactionsRuntime, marking: Markers
    ) -> None:
        """Streams are open: coordinators follow them, and reach those of other nodes."""
        assert isinstance(marking, ClusterMarkers), "made for a cluster"
        cluster = self._cluster
        reach_coordinators(
            cluster.node, cluster.peers, cluster.service.catalogue, transactions, marking
        )
        cluster.on_restored.append(self._streams.resync)
        self._streams.watch(
            partial(keep_fresh, holds_lease=lambda: self.leases.holds), lambda _: None
        )
        silent = Unavailable(
            ErrorCode.NOT_WRITER, "this node's lease has ended: its copies may be out of date"
        )
        self._streams.lapse(lambda: None if self.leases.holds else silent)
        follow_streams(self._streams, groups, transactions)

    async def end(self) -> None:
        """Lay the duties down."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def give_away(self) -> None:
        """Let others write what this node writes, before it stops."""
        # The lease is renewed until all is handed over: without it others would take the streams,
        # and what this node alone has acknowledged would be lost.
        self._is_leaving = True
        await self._hand_streams_over()
        await self.end()  # a lease that is renewed would undo the fence
        farewell = FenceNode(self._cluster.node, self._incarnation, STOPPED)
        try:
            # Where all nodes stop together there may be no majority left to hear it.
            async with asyncio.timeout(FAREWELL_S):
                await self._cluster.service.submit(farewell)
        except (MainstemError, TimeoutError) as error:
            _log.info("the others will notice by themselves that this node stops: %s", error)
        await self._cluster.hand_over()

    async def _hand_streams_over(self) -> None:
        """Have every stream that another node can write handed over; not longer than allowed."""
        catalogue = self._cluster.service.catalogue
        loop = asyncio.get_running_loop()
        give_up = loop.time() + HAND_OVER_S
        asked: set[tuple[StreamId, int]] = set()
        while loop.time() < give_up:
            heirs = [
                (stream, heir)
                for stream in catalogue.streams_of(self._cluster.node)
                if (heir := successor(catalogue, stream)) is not None
            ]
            if not heirs:
                return
            for stream, heir in heirs:
                if (stream.id, stream.last.index) not in asked:  # it was rolled, or came back
                    asked.add((stream.id, stream.last.index))
                    self._streams.roll(stream.id, new_writer=heir)
            await asyncio.sleep(0.02)

    def _roll(self, orders: Sequence[RollOrder]) -> None:
        if self._is_leaving:
            return
        for order in orders:
            known = self._cluster.service.catalogue.stream(order.stream)
            if known is not None and (known.epoch, known.last.index) == (order.epoch, order.index):
                self._streams.roll(order.stream, new_writer=order.new_writer)


def _tell_failure(task: asyncio.Task[None], on_fatal: Fatal) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        on_fatal(error)
