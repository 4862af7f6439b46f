"""The coordinators of one node of ``cluster_sim``: groups and transactions, as on a real node.

They follow the streams of their internal topics from node to node (``node/duties``).
"""

from random import Random

from mainstem.broker.admin import NodeDefaults, TopicsAdmin
from mainstem.broker.producers_service import ProducerIds
from mainstem.coordination.elsewhere_runtime import ClusterMarkers
from mainstem.coordination.partitions import OFFSETS_TOPIC
from mainstem.coordination.runtime import GroupsRuntime
from mainstem.coordination.settings import GroupSettings
from mainstem.coordination.transaction_settings import TransactionSettings
from mainstem.coordination.transactions_runtime import TransactionsRuntime
from mainstem.model.clock import Clock
from mainstem.model.ids import NodeId
from mainstem.model.metadata import Node
from mainstem.model.topic_name import TRANSACTION_STATE_TOPIC
from mainstem.node.duties import (
    follow_streams,
    internal_topic,
    reach_coordinators,
    writer_of,
)
from mainstem.placement.group_service import GroupPlacementService
from mainstem.streams.service import StreamService
from mainstem.testing.peer_network import NetworkPeers


class SimCoordinators:
    """See the module's text.

    Args:
        node: this node, and which of its lives it is.
        service: its door to the catalogue.
        streams: what it writes.
        peers: how it reaches others.
        clock: the node's.
        rng: makes ids.
    """

    def __init__(
        self,
        node: tuple[NodeId, int],
        service: GroupPlacementService,
        streams: StreamService,
        peers: NetworkPeers,
        clock: Clock,
        rng: Random,
    ) -> None:
        number, _ = node
        topics = TopicsAdmin(service, Node(number, "127.0.0.1", 9092), NodeDefaults({}))
        self.groups = GroupsRuntime(
            GroupSettings(),
            internal_topic(topics, streams, OFFSETS_TOPIC),
            topics,
            clock,
            new_id=lambda: f"{rng.getrandbits(64):x}",
        )
        markers = ClusterMarkers(
            streams.door,
            self.groups.positions,
            node=number,
            peers=peers,
            writer_of=lambda topic, partition: writer_of(service.catalogue, topic, partition),
        )
        self.transactions = TransactionsRuntime(
            TransactionSettings(),
            internal_topic(topics, streams, TRANSACTION_STATE_TOPIC),
            clock,
            new_producer_id=ProducerIds(service, *node).new_producer_id,
            markers=markers,
            positions=self.groups.positions,
        )
        self.groups.start()
        self.transactions.start()
        reach_coordinators(number, peers, service.catalogue, self.transactions, markers)
        follow_streams(streams, self.groups, self.transactions)

    def end(self) -> None:
        """The node is gone."""
        self.transactions.stop()
        self.groups.stop()
