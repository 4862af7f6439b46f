"""The authoritative state of nodes, topics, streams and ranges: a pure shard.

    command ── decide ──▶ facts ── (made durable) ── replay ──▶ the catalogue has changed

``decide`` looks and changes nothing; ``replay`` is the only way anything changes, and does the same
on every node and after every restart; a fact that no longer applies changes nothing. Topics,
streams and ranges are immutable values: a value that a caller holds does not change.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from mainstem.model.ids import TopicId
from mainstem.model.limits import COMMANDS_REMEMBERED_MAX
from mainstem.model.metadata import Stream, Topic
from mainstem.model.topic_name import collision_key
from mainstem.placement.changes import applicability, commands, decisions
from mainstem.placement.changes import replication_commands as replication
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import AnyFact, CatalogueState
from mainstem.placement.changes.decisions import Decision
from mainstem.placement.changes.deduplication import without_references
from mainstem.placement.changes.replication_commands import RegisteredNode
from mainstem.placement.changes.security_commands import SecurityFact
from mainstem.placement.state import chain
from mainstem.placement.state.security_table import SECURITY_FACTS
from mainstem.placement.state.tables import CatalogueTables

ReplyT = TypeVar("ReplyT")
KeyT = TypeVar("KeyT")

DELETED_REMEMBERED_MAX = 10_000
"""How many deleted topics are kept; a node that was down for more keeps the oldest folders."""


class Catalogue(CatalogueTables):
    """Decides commands and replays facts about nodes, topics, streams and ranges.

    The look-ups are those of ``CatalogueTables``.
    """

    __slots__ = ()

    def decide(self, command: Command[ReplyT], now_ms: int) -> Decision[ReplyT]:
        """The facts that follow from a command and the reply; raises a refusal otherwise."""
        return decisions.decide(self, command, now_ms)

    def replay(self, fact: AnyFact) -> bool:
        """Apply a fact; False: it no longer applies, is counted, and changes nothing.

        A fact that was decided on this very state always applies. Others never raise, and are
        ignored on every node alike, so that a node starts from any log that was ever committed.
        """
        applied = _REPLAYS[type(fact)](self, fact)
        if not applied:
            self.ignored[type(fact).__name__] += 1
        return applied

    def fork(self) -> "Catalogue":
        """A separate catalogue with the same content, to decide ahead on."""
        forked = Catalogue(self.state())
        forked.busy = self.busy
        return forked

    def become(self, state: CatalogueState) -> None:
        """Replace the whole content by ``state``, in place: references to the catalogue stay valid.

        So do references to its ``security``.
        """
        security, busy, ignored = self.security, self.busy, self.ignored
        CatalogueTables.__init__(self, state)
        security.become(state.security)
        self.security, self.busy, self.ignored = security, busy, ignored

    def _node_registered(self, fact: commands.NodeRegistered) -> bool:
        known = self._nodes.get(fact.node.id)
        if known is not None and fact.incarnation <= known.incarnation:
            return _levels_announced(self, known, fact)
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
        return True

    def _set_fenced(
        self, fact: replication.NodeFenced | replication.NodeUnfenced, *, fenced: bool
    ) -> bool:
        known = self._nodes.get(fact.node)
        if known is None or known.incarnation != fact.incarnation:
            return False
        stopped = isinstance(fact, replication.NodeFenced) and fact.reason == replication.STOPPED
        if known.fenced == fenced and (known.stopped or not stopped):
            return False
        self._nodes[fact.node] = replace(known, fenced=fenced, stopped=stopped)
        self._elect(fact.elections)
        return True

    def _elect(self, elections: Iterable[replication.Election]) -> bool:
        """Apply the elections that are newer than what is known; whether one was."""
        return self._put_streams(
            chain.elected(stream, election)
            for election in elections
            if (stream := self.stream(election.stream)) is not None
            and applicability.elects(stream, election)
        )

    def _topic_created(self, fact: commands.TopicCreated) -> bool:
        collides = self.colliding(fact.name) is not None
        if not fact.replicas or collides or not self._is_free(fact.id, fact.name):
            return False
        self._put_topic(chain.new_topic(fact))
        return True

    def _is_free(self, topic: TopicId, name: str) -> bool:
        """Whether neither id nor name belong to a topic, and the id to none that was deleted."""
        return not (topic in self._topics or topic in self.deleted or name in self._by_name)

    def _topic_deleted(self, fact: commands.TopicDeleted) -> bool:
        topic = self._topics.get(fact.id)
        if topic is None:
            return False
        for known in without_references(self, topic):
            self.decided[known.id] = known
        del self._topics[fact.id]
        del self._by_name[topic.name]
        self._collisions.pop(collision_key(topic.name), None)
        self.partition_count -= len(topic.streams)
        for stream in topic.streams:
            self._seals.pop(stream.id, None)
        self.deleted[fact.id] = None
        if len(self.deleted) > DELETED_REMEMBERED_MAX:
            del self.deleted[next(iter(self.deleted))]
        return True

    def _partitions_added(self, fact: commands.PartitionsAdded) -> bool:
        topic = self._topics.get(fact.id)
        if topic is None or fact.expected not in (UNSET, len(topic.streams)):
            return False
        self._put_topic(chain.grown(topic, fact))
        return True

    def _topic_configs_set(self, fact: commands.TopicConfigsSet) -> bool:
        topic = self._topics.get(fact.id)
        if topic is None:
            return False
        self._put_topic(chain.configured(topic, fact))
        return True

    def _node_configs_set(self, fact: commands.NodeConfigsSet) -> bool:
        if fact.node is None:
            self._cluster_configs = dict(fact.configs)
        else:
            _put_or_drop(self._node_configs, fact.node, fact.configs)
        return True

    def _streams_restarted(self, fact: commands.StreamsRestarted) -> bool:
        restarted = [
            chain.restarted(stream, end, fact.at_ms)
            for end in fact.ends
            if (stream := self.stream(end.stream)) is not None
            and applicability.restarts(stream, fact.node, end)
        ]
        for stream in restarted:
            self._seals.pop(stream.id, None)
        return self._put_streams(restarted)

    def _range_sealed(self, fact: commands.RangeSealed) -> bool:
        stream = self.stream(fact.end.stream)
        if stream is None or not applicability.rolls(stream, fact):
            return False
        self._put_stream(chain.rolled(stream, fact))
        self._seals[fact.end.stream] = fact.request_id
        return True

    def _put_streams(self, streams: Iterable[Stream]) -> bool:
        """Store many streams, with one new value per topic, not per stream; whether any was."""
        # A topic may have thousands of streams.
        by_topic: dict[TopicId, list[Stream]] = {}
        for stream in streams:
            known = by_topic.get(stream.id.topic)
            if known is None:
                known = by_topic[stream.id.topic] = list(self._topics[stream.id.topic].streams)
            known[stream.id.partition] = stream
        for topic, every in by_topic.items():
            self._put_topic(replace(self._topics[topic], streams=tuple(every)))
        return bool(by_topic)

    def _put_stream(self, stream: Stream) -> None:
        self._put_topic(self._topics[stream.id.topic].with_stream(stream))

    def _put_topic(self, topic: Topic) -> None:
        before = self._topics.get(topic.id)
        self.partition_count += len(topic.streams) - (len(before.streams) if before else 0)
        self._topics[topic.id] = topic
        self._by_name[topic.name] = topic
        self._collisions.setdefault(collision_key(topic.name), topic.name)


def _levels_announced(
    catalogue: Catalogue, known: RegisteredNode, fact: commands.NodeRegistered
) -> bool:
    """Record further levels that the running process of a node supports."""
    if fact.incarnation < known.incarnation or fact.levels[1] <= known.levels[1]:
        return False
    catalogue._nodes[fact.node.id] = replace(known, levels=fact.levels)
    return True


def _topic_restored(catalogue: Catalogue, fact: commands.TopicRestored) -> bool:
    if not catalogue._is_free(fact.topic.id, fact.topic.name):
        return False
    catalogue._put_topic(fact.topic)
    return True


def _of_security(catalogue: Catalogue, fact: SecurityFact) -> bool:
    return catalogue.security.replay(fact)


def _cluster_formed(catalogue: Catalogue, fact: commands.ClusterFormed) -> bool:
    if catalogue.cluster_id:
        return False
    catalogue.cluster_id = fact.cluster_id
    return True


def _producer_ids_allocated(catalogue: Catalogue, fact: commands.ProducerIdsAllocated) -> bool:
    if fact.until <= catalogue._next_producer_id:
        return False
    catalogue._next_producer_id = fact.until
    return True


def _features_set(catalogue: Catalogue, fact: commands.FeaturesSet) -> bool:
    if fact.epoch <= catalogue.features_epoch:
        return False
    catalogue.features = dict(fact.levels)
    catalogue.features_epoch = fact.epoch
    return True


def _node_draining(catalogue: Catalogue, fact: replication.NodeDraining) -> bool:
    known = catalogue._nodes.get(fact.node)
    if known is None or known.draining == fact.draining:
        return False
    catalogue._nodes[fact.node] = replace(known, draining=fact.draining)
    return True


def _targets_set(catalogue: Catalogue, fact: replication.TargetsSet) -> bool:
    known = [
        (stream, target)
        for name, target in fact.targets
        if target and (stream := catalogue.stream(name)) is not None
    ]
    factors = {
        stream.id.topic: catalogue._topics[stream.id.topic].replicas_wanted for stream, _ in known
    }
    catalogue._put_streams(chain.targeted(stream, target) for stream, target in known)
    for topic_id, before in factors.items():
        topic = catalogue._topics[topic_id]
        after = len(topic.streams[0].wanted)
        factor = max(before, after) if fact.keep_factor else after
        catalogue._put_topic(replace(topic, replication=factor))
    return bool(known)


def _node_unregistered(catalogue: Catalogue, fact: commands.NodeUnregistered) -> bool:
    if catalogue._nodes.pop(fact.node, None) is None:
        return False
    catalogue._node_configs.pop(fact.node, None)
    return True


def _replica_completed(catalogue: Catalogue, fact: replication.ReplicaCompleted) -> bool:
    node = catalogue.node(fact.node)
    if node is None or node.directory != fact.directory:
        return False
    return _complete(catalogue, fact)


def _command_decided(catalogue: Catalogue, fact: commands.CommandDecided) -> bool:
    if fact.id in catalogue.decided:
        return False
    catalogue.decided[fact.id] = fact
    if len(catalogue.decided) > COMMANDS_REMEMBERED_MAX:
        del catalogue.decided[next(iter(catalogue.decided))]
    return True


def _put_or_drop(every: dict[KeyT, dict[str, str]], key: KeyT, configs: Mapping[str, str]) -> bool:
    """Store settings; an empty mapping removes the entry."""
    if configs:
        every[key] = dict(configs)
    else:
        every.pop(key, None)
    return True


def _stepped(
    applies: Callable[[Stream, Any], bool], step: Callable[[Stream, Any], Stream]
) -> Callable[[Catalogue, Any], bool]:
    """How a fact about one stream is applied, if it applies."""

    def replay(catalogue: Catalogue, fact: Any) -> bool:
        stream = catalogue.stream(fact.stream)
        if stream is None or not applies(stream, fact):
            return False
        catalogue._put_stream(step(stream, fact))
        return True

    return replay


_complete = _stepped(applicability.completes, chain.completed)

_REPLAYS: dict[type, Callable[[Catalogue, Any], bool]] = {
    commands.ClusterFormed: _cluster_formed,
    commands.NodeRegistered: Catalogue._node_registered,
    commands.TopicCreated: Catalogue._topic_created,
    commands.TopicRestored: _topic_restored,
    commands.TopicDeleted: Catalogue._topic_deleted,
    commands.PartitionsAdded: Catalogue._partitions_added,
    commands.TopicConfigsSet: Catalogue._topic_configs_set,
    commands.NodeConfigsSet: Catalogue._node_configs_set,
    commands.GroupConfigsSet: lambda catalogue, fact: _put_or_drop(
        catalogue._group_configs, fact.group, fact.configs
    ),
    commands.ClientMetricsSet: lambda catalogue, fact: _put_or_drop(
        catalogue.client_metrics, fact.name, fact.configs
    ),
    commands.FeaturesSet: _features_set,
    commands.NodeUnregistered: _node_unregistered,
    commands.ProducerIdsAllocated: _producer_ids_allocated,
    commands.StreamsRestarted: Catalogue._streams_restarted,
    commands.RangeSealed: Catalogue._range_sealed,
    commands.StreamTrimmed: _stepped(
        applicability.trims, lambda stream, fact: chain.trimmed(stream, fact.start)
    ),
    commands.GenerationSwapped: _stepped(applicability.swaps, chain.swapped),
    commands.RangesMerged: _stepped(applicability.merges, chain.merged),
    commands.CommandDecided: _command_decided,
    replication.NodeFenced: lambda catalogue, fact: catalogue._set_fenced(fact, fenced=True),
    replication.NodeUnfenced: lambda catalogue, fact: catalogue._set_fenced(fact, fenced=False),
    replication.NodeDraining: _node_draining,
    replication.WritersElected: lambda catalogue, fact: catalogue._elect(fact.elections),
    replication.TargetsSet: _targets_set,
    replication.ReplicaCompleted: _replica_completed,
    replication.CopyOrdered: _stepped(applicability.orders, chain.ordered),
    replication.ReplicaDropped: _stepped(applicability.drops, chain.dropped),
    **dict.fromkeys(SECURITY_FACTS, _of_security),
}
