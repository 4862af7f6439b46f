"""What the node puts behind the counter: its streams, topics, groups and producer ids."""

from dataclasses import dataclass

from mainstem.broker.api import Producers, Streams
from mainstem.broker.client_metrics_api import ClientMetrics
from mainstem.broker.cluster_api import Cluster
from mainstem.broker.groups_api import AllGroups, Groups
from mainstem.broker.queues_api import Queues
from mainstem.broker.security_api import Security
from mainstem.broker.share_api import ShareGroups
from mainstem.broker.topics_api import Topics
from mainstem.broker.transactions_api import Transactions
from mainstem.model.metadata import Node


@dataclass(slots=True)
class NodeBroker:
    """The rooms of one node, as protocols see them."""

    node: Node
    streams: Streams
    topics: Topics
    groups: Groups
    all_groups: AllGroups
    transactions: Transactions
    producers: Producers
    security: Security
    cluster: Cluster
    client_metrics: ClientMetrics
    queues: Queues
    shares: ShareGroups
