"""What the node puts behind the counter: its streams, topics, groups and producer ids."""

from mainstem.broker.api import Producers, Streams
from mainstem.broker.groups_api import Groups
from mainstem.broker.topics_api import Topics
from mainstem.broker.transactions_api import Transactions
from mainstem.model.metadata import Node


class NodeBroker:
    """The rooms of one node, as protocols see them."""

    def __init__(
        self,
        node: Node,
        streams: Streams,
        topics: Topics,
        groups: Groups,
        transactions: Transactions,
        producers: Producers,
    ) -> None:
        self.node = node
        self.streams = streams
        self.topics = topics
        self.groups = groups
        self.transactions = transactions
        self.producers = producers
