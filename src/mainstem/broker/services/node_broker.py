"""The broker API of a node: its streams, topics, groups and producer ids."""

from dataclasses import dataclass

from mainstem.broker.api.broker import Producers, Streams
from mainstem.broker.api.client_metrics import ClientMetrics
from mainstem.broker.api.cluster import Cluster
from mainstem.broker.api.groups import AllGroups, Groups
from mainstem.broker.api.queues import Queues
from mainstem.broker.api.security import Security
from mainstem.broker.api.share_groups import ShareGroups
from mainstem.broker.api.topics import Topics
from mainstem.broker.api.transactions import Transactions
from mainstem.model.metadata import Node


@dataclass(slots=True)
class NodeBroker:
    """The services of one node, as protocols see them."""

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
