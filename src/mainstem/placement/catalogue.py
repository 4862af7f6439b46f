"""The truth about nodes, topics, streams and ranges: a pure shard.

    command ── decide ──▶ facts ── (made durable) ── replay ──▶ the catalogue has changed

``decide`` looks and changes nothing; ``replay`` is the only way anything changes, and does the same
on every node and after every restart. Topics, streams and ranges are immutable values: what a
caller was given stays as it was.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec.structs import replace

from mainstem.model.ids import StreamId, TopicId
from mainstem.model.metadata import Stream, Topic
from mainstem.model.topic_name import collision_key
from mainstem.placement import chain, decisions, records
from mainstem.placement import replication_records as replication
from mainstem.placement.decisions import Decision
from mainstem.placement.fact import Command
from mainstem.placement.records import AnyFact, CatalogueState
from mainstem.placement.replication_records import RegisteredNode
from mainstem.placement.security_records import SecurityFact
from mainstem.placement.security_table import SECURITY_FACTS
from mainstem.placement.tables import Tables

ReplyT = TypeVar("ReplyT")
KeyT = TypeVar("KeyT")

DELETED_REMEMBERED_MAX = 10_000
"""A node that was away for more deletions than these keeps the folders of the oldest."""


class Catalogue(Tables):
    """See the module's text; the look-ups are those of ``Tables``."""

    __slots__ = ()

    def decide(self, command: Command[ReplyT], now_ms: int) -> Decision[ReplyT]:
        """The facts that follow from a command and the reply; raises a refusal otherwise."""
        return decisions.decide(self, command, now_ms)

    def replay(self, fact: AnyFact) -> None:
        """Take a fact in. It was decided on this very state, so it cannot be refused."""
        _REPLAYS[type(fact)](self, fact)

    def fork(self) -> "Catalogue":
        """A catalogue of its own with the same content, to decide ahead on."""
        forked = Catalogue(self.state())
        forked.busy = self.busy
        return forked

    def become(self, state: CatalogueState) -> None:
        """Forget everything and be as ``state`` says; whoever holds the catalogue sees it.

        So does whoever holds its ``security``.
        """
        security, busy = self.security, self.busy
        Tables.__init__(self, state)
        security.become(state.security)
        self.security, self.busy = security, busy

    def _node_registered(self, fact: records.NodeRegistered) -> None:
        known = self._nodes.get(fact.node.id)
        self._nodes[fact.node.id] = RegisteredNode(
            fact.node,
            fact.incarnation,
            fact.directory,
            draining=known is not None and known.draining,
            levels=fact.levels,
        )
        if known is not None and known.directory != fact.directory:
            for topic in list(self._topics.values()):
                self._put_topic(
                    replace(
                        topic, streams=tuple(chain.blank(s, fact.node.id) for s in topic.streams)
                    )
                )
        self._elect(fact.elections)

    def _node_fenced(self, fact: replication.NodeFenced) -> None:
        self._nodes[fact.node] = replace(self._nodes[fact.node], fenced=True)
        self._elect(fact.elections)

    def _node_unfenced(self, fact: replication.NodeUnfenced) -> None:
        self._nodes[fact.node] = replace(self._nodes[fact.node], fenced=False)
        self._elect(fact.elections)

    def _elect(self, elections: Iterable[replication.Election]) -> None:
        self._put_streams(
            chain.elected(self._held(election.stream), election) for election in elections
        )

    def _topic_created(self, fact: records.TopicCreated) -> None:
        self._put_topic(chain.new_topic(fact))

    def _topic_deleted(self, fact: records.TopicDeleted) -> None:
        topic = self._topics.pop(fact.id)
        del self._by_name[topic.name]
        self._collisions.pop(collision_key(topic.name), None)
        self.partition_count -= len(topic.streams)
        for stream in topic.streams:
            self._seals.pop(stream.id, None)
        self.deleted[fact.id] = None
        if len(self.deleted) > DELETED_REMEMBERED_MAX:
            del self.deleted[next(iter(self.deleted))]

    def _partitions_added(self, fact: records.PartitionsAdded) -> None:
        self._put_topic(chain.grown(self._topics[fact.id], fact))

    def _topic_configs_set(self, fact: records.TopicConfigsSet) -> None:
        self._put_topic(chain.configured(self._topics[fact.id], fact))

    def _node_configs_set(self, fact: records.NodeConfigsSet) -> None:
        if fact.node is None:
            self._cluster_configs = dict(fact.configs)
        else:
            _put_or_drop(self._node_configs, fact.node, fact.configs)

    def _streams_restarted(self, fact: records.StreamsRestarted) -> None:
        self._put_streams(
            chain.restarted(self._held(end.stream), end, fact.at_ms) for end in fact.ends
        )
        for end in fact.ends:
            self._seals.pop(end.stream, None)

    def _range_sealed(self, fact: records.RangeSealed) -> None:
        self._put_stream(chain.rolled(self._held(fact.end.stream), fact))
        self._seals[fact.end.stream] = fact.request_id

    def _stream_trimmed(self, fact: records.StreamTrimmed) -> None:
        self._put_stream(chain.trimmed(self._held(fact.stream), fact.start))

    def _held(self, stream: StreamId) -> Stream:
        return self._topics[stream.topic].streams[stream.partition]

    def _put_streams(self, streams: Iterable[Stream]) -> None:
        """Put many, with one new value per topic, not per stream: a topic may have thousands."""
        by_topic: dict[TopicId, list[Stream]] = {}
        for stream in streams:
            known = by_topic.get(stream.id.topic)
            if known is None:
                known = by_topic[stream.id.topic] = list(self._topics[stream.id.topic].streams)
            known[stream.id.partition] = stream
        for topic, every in by_topic.items():
            self._put_topic(replace(self._topics[topic], streams=tuple(every)))

    def _put_stream(self, stream: Stream) -> None:
        self._put_topic(self._topics[stream.id.topic].with_stream(stream))

    def _put_topic(self, topic: Topic) -> None:
        before = self._topics.get(topic.id)
        self.partition_count += len(topic.streams) - (len(before.streams) if before else 0)
        self._topics[topic.id] = topic
        self._by_name[topic.name] = topic
        self._collisions.setdefault(collision_key(topic.name), topic.name)


def _of_security(catalogue: Catalogue, fact: SecurityFact) -> None:
    catalogue.security.replay(fact)


def _cluster_formed(catalogue: Catalogue, fact: records.ClusterFormed) -> None:
    catalogue.cluster_id = fact.cluster_id


def _producer_ids_allocated(catalogue: Catalogue, fact: records.ProducerIdsAllocated) -> None:
    catalogue._next_producer_id = fact.until


def _features_set(catalogue: Catalogue, fact: records.FeaturesSet) -> None:
    catalogue.features = dict(fact.levels)
    catalogue.features_epoch = fact.epoch


def _node_draining(catalogue: Catalogue, fact: replication.NodeDraining) -> None:
    catalogue._nodes[fact.node] = replace(catalogue._nodes[fact.node], draining=fact.draining)


def _targets_set(catalogue: Catalogue, fact: replication.TargetsSet) -> None:
    topics = {stream.topic for stream, _ in fact.targets}
    factors = {topic: catalogue._topics[topic].replicas_wanted for topic in topics}
    catalogue._put_streams(
        chain.targeted(catalogue._held(stream), target) for stream, target in fact.targets
    )
    for topic, before in factors.items():
        known = catalogue._topics[topic]
        after = len(known.streams[0].wanted)
        factor = max(before, after) if fact.keep_factor else after
        catalogue._put_topic(replace(known, replication=factor))


def _node_unregistered(catalogue: Catalogue, fact: records.NodeUnregistered) -> None:
    del catalogue._nodes[fact.node]
    catalogue._node_configs.pop(fact.node, None)


def _put_or_drop(every: dict[KeyT, dict[str, str]], key: KeyT, configs: Mapping[str, str]) -> None:
    """Keep what is set; nothing set is nothing to keep."""
    if configs:
        every[key] = dict(configs)
    else:
        every.pop(key, None)


def _stepped(step: Callable[[Stream, Any], Stream]) -> Callable[[Catalogue, Any], None]:
    """How a fact about one stream is taken in."""

    def replay(catalogue: Catalogue, fact: Any) -> None:
        catalogue._put_stream(step(catalogue._held(fact.stream), fact))

    return replay


_REPLAYS: dict[type, Callable[[Catalogue, Any], None]] = {
    records.ClusterFormed: _cluster_formed,
    records.NodeRegistered: Catalogue._node_registered,
    records.TopicCreated: Catalogue._topic_created,
    records.TopicRestored: lambda catalogue, fact: catalogue._put_topic(fact.topic),
    records.TopicDeleted: Catalogue._topic_deleted,
    records.PartitionsAdded: Catalogue._partitions_added,
    records.TopicConfigsSet: Catalogue._topic_configs_set,
    records.NodeConfigsSet: Catalogue._node_configs_set,
    records.GroupConfigsSet: lambda catalogue, fact: _put_or_drop(
        catalogue._group_configs, fact.group, fact.configs
    ),
    records.ClientMetricsSet: lambda catalogue, fact: _put_or_drop(
        catalogue.client_metrics, fact.name, fact.configs
    ),
    records.FeaturesSet: _features_set,
    records.NodeUnregistered: _node_unregistered,
    records.ProducerIdsAllocated: _producer_ids_allocated,
    records.StreamsRestarted: Catalogue._streams_restarted,
    records.RangeSealed: Catalogue._range_sealed,
    records.StreamTrimmed: Catalogue._stream_trimmed,
    records.GenerationSwapped: _stepped(chain.swapped),
    records.RangesMerged: _stepped(chain.merged),
    replication.NodeFenced: Catalogue._node_fenced,
    replication.NodeUnfenced: Catalogue._node_unfenced,
    replication.NodeDraining: _node_draining,
    replication.WritersElected: lambda catalogue, fact: catalogue._elect(fact.elections),
    replication.TargetsSet: _targets_set,
    replication.ReplicaCompleted: _stepped(chain.completed),
    replication.CopyOrdered: _stepped(chain.ordered),
    replication.ReplicaDropped: _stepped(chain.dropped),
    **dict.fromkeys(SECURITY_FACTS, _of_security),
}
