"""Background tasks of a cluster node: its lease, and the placement driver on the leader.

Streams follow the catalogue by themselves and coordinators follow the streams; this module connects
them to other nodes, and hands everything over in order when the node stops.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from mainstem.broker.api.broker import Streams
from mainstem.broker.services.topics_service import TopicsAdmin
from mainstem.cluster.peers.frames import PeerService
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.shards.registry_driver import InternalTopic, ShardRegistry
from mainstem.coordination.transactions.markers_driver import Markers
from mainstem.coordination.transactions.remote_coordinator_service import (
    ClusterMarkers,
    RemoteCoordinator,
)
from mainstem.coordination.transactions.service import TransactionCoordinator
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NodeId, StreamId
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC
from mainstem.node.clustering.membership import ClusterNode
from mainstem.node.clustering.moves_service import PlannedMoves
from mainstem.node.clustering.stream_forwarding import ForwardingStreams
from mainstem.placement.changes.replication_commands import STOPPED, FenceNode
from mainstem.placement.planning.election import successor
from mainstem.placement.planning.leases import PRESETS
from mainstem.placement.planning.leases_service import LeaseHooks, LeasesService
from mainstem.placement.planning.reconciler import RollOrder
from mainstem.placement.planning.reconciler_driver import ClusterReconcilerDriver
from mainstem.placement.state.catalogue import Catalogue
from mainstem.streams.context import PeerMessaging
from mainstem.streams.failover.writer_freshness import keep_fresh
from mainstem.streams.service import StreamService
from mainstem.streams.writer.stream_driver import StreamWriter

HAND_OVER_S: Final = 3.0
LEAVE_NOTICE_TIMEOUT_S: Final = 1.0
# How long to wait for a machine to refuse a connection, which shows that the process is down.
LOOK_S: Final = 0.3
_log = logging.getLogger(__name__)

Fatal = Callable[[BaseException], None]


_Registries = dict[str, ShardRegistry[Any, Any]]


def writer_of(catalogue: Catalogue, topic: str, partition: int) -> NodeId:
    """The node that writes a partition; ``NO_NODE`` if there is none.

    Raises:
        InvalidRequest: there is no such partition.
    """
    found = catalogue.topic(topic)
    if found is None or not 0 <= partition < len(found.streams):
        raise InvalidRequest(ErrorCode.UNKNOWN_TOPIC, subject=f"{topic}-{partition}")
    return found.streams[partition].writer


def internal_topic(topics: TopicsAdmin, streams: StreamService, name: str) -> InternalTopic:
    """How the coordinators of a node reach an internal topic."""
    return InternalTopic(
        ensure=partial(topics.ensure_internal, name),
        open_stream=partial(streams.partition, name),
        partition_count=topics.partition_count,
    )


def markers(
    cluster: ClusterNode | None, streams: StreamService, groups: GroupCoordinator
) -> Markers:
    """How transactions end in partitions, here or on other nodes."""
    if cluster is None:
        return Markers(streams.partition, groups.transactional_offsets)
    catalogue = cluster.service.catalogue
    return ClusterMarkers(
        streams.partition,
        groups.transactional_offsets,
        node=cluster.node,
        peers=cluster.peers,
        writer_of=lambda topic, partition: writer_of(catalogue, topic, partition),
    )


def connect_coordinators(
    node: NodeId,
    peers: PeerMessaging,
    catalogue: Catalogue,
    transactions: TransactionCoordinator,
    marking: ClusterMarkers,
) -> None:
    """Connect the transaction coordinators of all nodes."""

    def coordinator_of(transactional_id: str) -> NodeId:
        if catalogue.topic(TRANSACTION_STATE_TOPIC) is None:
            return node
        partition = transactions.coordinator_partition(transactional_id)
        return writer_of(catalogue, TRANSACTION_STATE_TOPIC, partition)

    transactions.remote = RemoteCoordinator(node, peers, marking, coordinator_of, transactions)
    peers.serve(PeerService.MARKERS, transactions.remote.serve)


def follow_streams(
    streams: StreamService, groups: GroupCoordinator, transactions: TransactionCoordinator
) -> None:
    """Coordinators are where the streams of their internal topics are written."""
    registries: _Registries = {
        OFFSETS_TOPIC: groups.shards,
        TRANSACTION_STATE_TOPIC: transactions.shards,
    }
    kept: dict[StreamId, str] = {}

    def opened(stream: StreamWriter) -> None:
        if stream.topic in registries:
            kept[stream.id] = stream.topic
            registries[stream.topic].opened(stream.id.partition)

    def closed(stream: StreamId) -> None:
        topic = kept.pop(stream, None)
        if topic is not None:
            registries[topic].closed(stream.partition)

    streams.table.watch(opened, closed)


def forwarding_streams(cluster: ClusterNode | None, streams: StreamService) -> Streams:
    """The streams as protocols see them; appends to other nodes' streams are forwarded."""
    if cluster is None:
        return streams
    catalogue = cluster.service.catalogue
    made = ForwardingStreams(
        streams,
        cluster.node,
        cluster.peers,
        lambda topic, partition: writer_of(catalogue, topic, partition),
    )
    cluster.peers.serve(PeerService.REQUESTS, made.serve)
    return made


class ClusterTasks:
    """Runs the background tasks of this node in its cluster.

    Args:
        cluster: this node's cluster membership.
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
        self.moves = PlannedMoves(
            cluster.node, cluster.service.catalogue, cluster.peers, self._roll
        )

    def begin(self, clock: Clock, preset: str, on_fatal: Fatal) -> None:
        """Renew the lease from now on, and run the placement driver whenever this node leads.

        Called before streams are opened, which may take longer than a lease lasts.
        """
        cluster = self._cluster
        placing = ClusterReconcilerDriver(
            cluster.service,
            lambda: cluster.driver.state.led_term,
            clock,
            PRESETS[preset],
            is_refused=lambda node: cluster.peers.is_refused(node, timeout_s=LOOK_S),
        )
        self.leases = LeasesService(
            (cluster.node, self._incarnation),
            cluster.driver,
            cluster.peers,
            placing,
            clock,
            LeaseHooks(on_orders=self._roll, on_superseded=on_fatal),
        )
        cluster.peers.serve(PeerService.LEASES, self.leases.serve)
        cluster.peers.serve(PeerService.MOVES, self.moves.serve)
        cluster.peers.watcher.on_gone.append(placing.gone)
        cluster.on_role.append(lambda _: placing.wake())
        loop = asyncio.get_running_loop()
        for coroutine in (placing.run(), self.leases.run()):
            task = loop.create_task(coroutine)
            task.add_done_callback(lambda ended: _report_failure(ended, on_fatal))
            self._tasks.append(task)

    def connect(
        self, groups: GroupCoordinator, transactions: TransactionCoordinator, marking: Markers
    ) -> None:
        """Streams are open: coordinators follow them, and reach those of other nodes."""
        assert isinstance(marking, ClusterMarkers), "made for a cluster"
        cluster = self._cluster
        connect_coordinators(
            cluster.node, cluster.peers, cluster.service.catalogue, transactions, marking
        )
        cluster.on_restored.append(self._streams.lifecycle.resync)
        self._streams.table.watch(
            partial(keep_fresh, holds_lease=lambda: self.leases.holds), lambda _: None
        )
        silent = Unavailable(
            ErrorCode.NOT_WRITER, "this node's lease has ended: its copies may be out of date"
        )
        self._streams.set_lapsed_check(lambda: None if self.leases.holds else silent)
        follow_streams(self._streams, groups, transactions)

    async def end(self) -> None:
        """Stop all tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def hand_over_all(self) -> None:
        """Hand this node's streams over to other nodes before it stops."""
        # The lease is renewed until all is handed over: without it others would take the streams,
        # and what this node alone has acknowledged would be lost.
        self._is_leaving = True
        await self._hand_streams_over()
        await self.end()  # a lease that is renewed would undo the fence
        fence_command = FenceNode(self._cluster.node, self._incarnation, STOPPED)
        try:
            # Where all nodes stop together there may be no majority left to record it.
            async with asyncio.timeout(LEAVE_NOTICE_TIMEOUT_S):
                await self._cluster.service.submit(fence_command)
        except (MainstemError, TimeoutError) as error:
            _log.info("the other nodes will detect the stop of this node by time-out: %s", error)
        await self._cluster.hand_over()

    async def _hand_streams_over(self) -> None:
        """Hand over every stream that another node can write, within the time allowed."""
        catalogue = self._cluster.service.catalogue
        loop = asyncio.get_running_loop()
        give_up = loop.time() + HAND_OVER_S
        asked: set[tuple[StreamId, int]] = set()
        while loop.time() < give_up:
            successors = [
                (stream, new_writer)
                for stream in catalogue.streams_of(self._cluster.node)
                if (new_writer := successor(catalogue, stream)) is not None
            ]
            if not successors:
                return
            for stream, new_writer in successors:
                if (stream.id, stream.last.index) not in asked:  # it was rolled, or came back
                    asked.add((stream.id, stream.last.index))
                    self._streams.roll(stream.id, new_writer=new_writer)
            await asyncio.sleep(0.02)

    def _roll(self, orders: Sequence[RollOrder]) -> None:
        if self._is_leaving:
            return
        for order in orders:
            known = self._cluster.service.catalogue.stream(order.stream)
            if known is not None and (known.epoch, known.last.index) == (order.epoch, order.index):
                self._streams.roll(order.stream, new_writer=order.new_writer)


def _report_failure(task: asyncio.Task[None], on_fatal: Fatal) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        on_fatal(error)
