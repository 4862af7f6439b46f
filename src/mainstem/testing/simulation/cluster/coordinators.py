"""The coordinators of one node of ``simulator``: groups and transactions, as on a real node.

They follow the streams of their internal topics from node to node.
"""

from random import Random

from mainstem.broker.services.producer_ids_service import ProducerIdBlocks
from mainstem.broker.services.topics_service import NodeDefaults, TopicsAdmin
from mainstem.coordination.groups.service import GroupCoordinator
from mainstem.coordination.groups.settings import GroupSettings
from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.transactions.remote_coordinator_service import ClusterMarkers
from mainstem.coordination.transactions.service import TransactionCoordinator
from mainstem.coordination.transactions.settings import TransactionSettings
from mainstem.model.clock import Clock
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC
from mainstem.node.clustering.tasks import (
    connect_coordinators,
    follow_streams,
    internal_topic,
    writer_of,
)
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.streams.service import StreamService
from mainstem.testing.simulation.peer_network import NetworkPeers


class SimCoordinators:
    """Runs the group and transaction coordinators of a simulated node.

    Args:
        node: this node and its incarnation.
        service: its placement service.
        streams: its streams.
        peers: its connections to other nodes.
        clock: the node's clock.
        rng: generates ids.
    """

    def __init__(
        self,
        node: tuple[NodeId, int],
        service: RaftPlacementService,
        streams: StreamService,
        peers: NetworkPeers,
        clock: Clock,
        rng: Random,
    ) -> None:
        number, _ = node
        topics = TopicsAdmin(service, Node(number, "127.0.0.1", 9092), NodeDefaults({}))
        self.groups = GroupCoordinator(
            GroupSettings(),
            internal_topic(topics, streams, OFFSETS_TOPIC),
            topics,
            clock,
            new_id=lambda: f"{rng.getrandbits(64):x}",
        )
        markers = ClusterMarkers(
            streams.partition,
            self.groups.transactional_offsets,
            node=number,
            peers=peers,
            writer_of=lambda topic, partition: writer_of(service.catalogue, topic, partition),
        )
        self.transactions = TransactionCoordinator(
            TransactionSettings(),
            internal_topic(topics, streams, TRANSACTION_STATE_TOPIC),
            clock,
            new_producer_id=ProducerIdBlocks(service, *node).new_producer_id,
            markers=markers,
            group_offsets=self.groups.transactional_offsets,
        )
        self.groups.start()
        self.transactions.start()
        connect_coordinators(number, peers, service.catalogue, self.transactions, markers)
        follow_streams(streams, self.groups, self.transactions)

    def end(self) -> None:
        """Stop the coordinators: the node has ended."""
        self.transactions.stop()
        self.groups.stop()
