"""The tables of the catalogue and their look-ups. Reading only; ``catalogue`` changes them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.features import MAINSTEM_VERSION, level_of
from mainstem.model.ids import NodeId, ProducerId, StreamId, TopicId, topic_id_text
from mainstem.model.metadata import Stream, Topic
from mainstem.model.topic_name import collision_key
from mainstem.placement.changes.commands import CatalogueState, CommandDecided
from mainstem.placement.changes.replication_commands import RegisteredNode
from mainstem.placement.state.security_table import SecurityTable


def _no_load(node: NodeId) -> int:
    """Default load of nodes: none is known."""
    del node
    return 0


class CatalogueTables:
    """Topics by id and by name, nodes, dynamic settings; ``security`` has the rest.

    ``cluster_id`` is the cluster's name, empty before it is formed. ``deleted`` are the topics that
    were deleted last.
    ``client_metrics`` are the settings of subscriptions to clients' metrics, by name. ``features``
    are the levels that were set, ``features_epoch`` how often that was done.
    ``partition_count`` is the number of streams of all topics. ``busy`` returns
    the load of a node, in coarse steps from 0 on; it is no part of the state, only an input of
    decisions. ``decided`` are the commands that were decided last, by id. ``ignored``
    counts facts that no longer applied when they were replayed, by type; no part of the state.
    """

    __slots__ = (
        "_by_name",
        "_cluster_configs",
        "_collisions",
        "_group_configs",
        "_next_producer_id",
        "_node_configs",
        "_nodes",
        "_seals",
        "_topics",
        "busy",
        "client_metrics",
        "cluster_id",
        "decided",
        "deleted",
        "features",
        "features_epoch",
        "ignored",
        "partition_count",
        "security",
    )

    def __init__(self, state: CatalogueState | None = None) -> None:
        state = state or CatalogueState()
        self.busy: Callable[[NodeId], int] = _no_load
        self.ignored: Counter[str] = Counter()
        self.cluster_id = state.cluster_id
        self._nodes: dict[NodeId, RegisteredNode] = {n.node.id: n for n in state.nodes}
        self._topics: dict[TopicId, Topic] = {topic.id: topic for topic in state.topics}
        self._by_name: dict[str, Topic] = {topic.name: topic for topic in state.topics}
        self._collisions: dict[str, str] = {collision_key(name): name for name in self._by_name}
        self._cluster_configs: dict[str, str] = dict(state.cluster_configs)
        self._node_configs: dict[NodeId, dict[str, str]] = dict(state.node_configs)
        self._group_configs: dict[str, dict[str, str]] = dict(state.group_configs)
        self.client_metrics: dict[str, dict[str, str]] = dict(state.client_metrics)
        self.features: dict[str, int] = dict(state.features)
        self.features_epoch = state.features_epoch
        self._next_producer_id = state.next_producer_id
        self._seals: dict[StreamId, str] = dict(state.seals)
        self.deleted: dict[TopicId, None] = dict.fromkeys(state.deleted)
        self.decided: dict[str, CommandDecided] = {known.id: known for known in state.decided}
        self.security = SecurityTable(state.security)
        self.partition_count = sum(len(topic.streams) for topic in state.topics)

    def state(self) -> CatalogueState:
        """Everything as one value."""
        return CatalogueState(
            cluster_id=self.cluster_id,
            nodes=tuple(self._nodes.values()),
            topics=tuple(self._topics.values()),
            cluster_configs=dict(self._cluster_configs),
            node_configs=tuple((node, dict(c)) for node, c in self._node_configs.items()),
            group_configs=tuple((group, dict(c)) for group, c in self._group_configs.items()),
            client_metrics=tuple((name, dict(c)) for name, c in self.client_metrics.items()),
            features=dict(self.features),
            features_epoch=self.features_epoch,
            next_producer_id=self._next_producer_id,
            seals=tuple(self._seals.items()),
            deleted=tuple(self.deleted),
            security=self.security.state(),
            decided=tuple(self.decided.values()),
        )

    @property
    def level(self) -> int:
        """The level of ``mainstem.version``: what may be written that older nodes cannot read."""
        return level_of(self.features, MAINSTEM_VERSION)

    @property
    def next_producer_id(self) -> ProducerId:
        """The first producer id that is not allocated."""
        return self._next_producer_id

    def topics(self) -> Iterable[Topic]:
        """Every topic, in the order of creation. Do not hold the view over an ``await``."""
        return self._topics.values()

    def topic(self, name: str) -> Topic | None:
        """The topic with that name."""
        return self._by_name.get(name)

    def topic_by_id(self, topic: TopicId) -> Topic | None:
        """The topic with that id."""
        return self._topics.get(topic)

    def colliding(self, name: str) -> str | None:
        """The existing name that differs from ``name`` only in ``.`` and ``_``."""
        other = self._collisions.get(collision_key(name))
        return None if other == name else other

    def stream(self, stream: StreamId) -> Stream | None:
        """One stream."""
        topic = self._topics.get(stream.topic)
        if topic is None or not 0 <= stream.partition < len(topic.streams):
            return None
        return topic.streams[stream.partition]

    def streams_of(self, writer: NodeId) -> Iterator[Stream]:
        """The streams that a node writes."""
        for topic in self._topics.values():
            for stream in topic.streams:
                if stream.writer == writer:
                    yield stream

    def nodes(self) -> Iterable[RegisteredNode]:
        """Every node that ever registered."""
        return self._nodes.values()

    def node(self, node: NodeId) -> RegisteredNode | None:
        """One node."""
        return self._nodes.get(node)

    def is_live(self, node: NodeId) -> bool:
        """Whether a node may write: it is registered and not fenced."""
        known = self._nodes.get(node)
        return known is not None and not known.fenced

    def incarnation(self, node: NodeId) -> int:
        """The incarnation under which a node registered last; 0 before the first time."""
        known = self._nodes.get(node)
        return 0 if known is None else known.incarnation

    def cluster_configs(self) -> Mapping[str, str]:
        """Dynamic settings of all nodes."""
        return self._cluster_configs

    def node_configs(self, node: NodeId) -> Mapping[str, str]:
        """Dynamic settings of one node."""
        return self._node_configs.get(node, {})

    def group_configs(self) -> Mapping[str, Mapping[str, str]]:
        """Settings of consumer groups, by group."""
        return self._group_configs

    def last_seal(self, stream: StreamId) -> str | None:
        """The request that opened the last range, if it was a ``SealAndCreate``."""
        return self._seals.get(stream)

    def need_topic(self, topic: TopicId) -> Topic:
        """The topic with that id, or a refusal."""
        found = self._topics.get(topic)
        if found is None:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with that id",
                subject=topic_id_text(topic),
            )  # fmt: skip
        return found

    def need_stream(self, stream: StreamId) -> Stream:
        """One stream, or a refusal."""
        found = self.stream(stream)
        if found is None:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_TOPIC_ID, "there is no such stream", subject=str(stream)
            )
        return found
