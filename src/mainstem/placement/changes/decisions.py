"""The catalogue's decision on each command: the facts that follow, or a refusal.

Nothing here changes anything. A command based on an outdated state (an older epoch, another last
range, configs that changed concurrently) gets ``Fenced``: read the state and decide again.
"""

from collections.abc import Callable
from itertools import chain as chained
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from mainstem.model.config.topic import check_topic_configs
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.features import MAINSTEM_VERSION, OWN_LEVELS
from mainstem.model.ids import NO_NODE, ProducerId, StreamId
from mainstem.model.limits import PARTITIONS_PER_NODE_MAX
from mainstem.model.metadata import Stream, Topic
from mainstem.model.topic_name import check_topic_name
from mainstem.placement.changes import commands
from mainstem.placement.changes.cluster_decisions import (
    CLUSTER_DECIDERS,
    levels_include,
    same_configs,
)
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.changes.deduplication import REMEMBERING_LEVEL
from mainstem.placement.changes.preconditions import (
    current_epoch,
    current_incarnation,
    enough_copies,
    fits_open_range,
    sealed_range,
)
from mainstem.placement.changes.replication_commands import WritersElected
from mainstem.placement.changes.replication_decisions import REPLICATION_DECIDERS
from mainstem.placement.changes.security_decisions import SECURITY_DECIDERS
from mainstem.placement.planning import election as electing
from mainstem.placement.planning import replica_placement
from mainstem.placement.state import chain
from mainstem.placement.state.tables import CatalogueTables

ReplyT = TypeVar("ReplyT")

PRODUCER_IDS_PER_BLOCK_MAX = 1_000_000
PRODUCER_ID_MAX = 2**63 - 1


class Decision(NamedTuple, Generic[ReplyT]):
    """Facts to be made durable, and the reply that is sent once they are."""

    facts: tuple[AnyFact, ...]
    reply: ReplyT


def decide(tables: CatalogueTables, command: Command[ReplyT], now_ms: int) -> Decision[ReplyT]:
    """The decision on one command."""
    of_cluster = CLUSTER_DECIDERS.get(type(command))
    if of_cluster is not None:
        return Decision(*of_cluster(tables, command))
    of_replication = REPLICATION_DECIDERS.get(type(command))
    if of_replication is not None:
        return Decision(*of_replication(tables, command, now_ms))
    of_security = SECURITY_DECIDERS.get(type(command))
    if of_security is not None:
        return Decision(*of_security(tables.security, command))
    return _DECIDERS[type(command)](tables, command, now_ms)


# Cluster and nodes


def _form_cluster(
    tables: CatalogueTables, command: commands.FormCluster, now_ms: int
) -> Decision[None]:
    if tables.cluster_id == command.cluster_id:
        return Decision((), None)
    if tables.cluster_id:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"the catalogue belongs to cluster {tables.cluster_id}, not {command.cluster_id}",
            remedy="start the node with the data folder of its own cluster",
        )
    levels = {**tables.features, MAINSTEM_VERSION: OWN_LEVELS[1]}
    formed = commands.ClusterFormed(command.cluster_id, now_ms)
    return Decision((formed, commands.FeaturesSet(tables.features_epoch + 1, levels)), None)


def _register_node(
    tables: CatalogueTables, command: commands.RegisterNode, now_ms: int
) -> Decision[None]:
    levels_include(command.levels, tables.level, command.node.id)
    known = tables.incarnation(command.node.id)
    if command.incarnation <= known:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"incarnation {command.incarnation} is not newer than {known}",
            subject=f"node {command.node.id}",
        )
    elections = electing.elections_with(tables, command.node.id, command.directory, restarted=True)
    fact = commands.NodeRegistered(
        command.node,
        command.incarnation,
        command.directory,
        now_ms,
        tuple(elections),
        command.levels,
    )
    return Decision((fact,), None)


def _announce_levels(
    tables: CatalogueTables, command: commands.AnnounceLevels, now_ms: int
) -> Decision[None]:
    current_incarnation(tables, command.node, command.incarnation)
    held = tables.node(command.node)
    assert held is not None, "it has an incarnation"
    if held.levels == command.levels:
        return Decision((), None)
    if held.fenced:
        raise Fenced(ErrorCode.FENCED_EPOCH, "the node is fenced", subject=f"node {command.node}")
    # A fact of its own would be unknown to release 0.1; this one changes nothing but the levels.
    fact = commands.NodeRegistered(
        held.node, held.incarnation, held.directory, now_ms, (), command.levels
    )
    return Decision((fact,), None)


def _allocate_producer_ids(
    tables: CatalogueTables, command: commands.AllocateProducerIds, now_ms: int
) -> Decision[tuple[ProducerId, ProducerId]]:
    del now_ms
    current_incarnation(tables, command.node, command.incarnation)
    start = tables.next_producer_id
    left = PRODUCER_ID_MAX - start
    if not 0 < command.count <= min(PRODUCER_IDS_PER_BLOCK_MAX, left):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, f"{command.count} producer ids cannot be allocated"
        )
    until = ProducerId(start + command.count)
    return Decision((commands.ProducerIdsAllocated(until),), (start, until))


# Topics


def _create_topic(
    tables: CatalogueTables, command: commands.CreateTopic, now_ms: int
) -> Decision[Topic]:
    check_topic_name(command.name)
    if tables.topic(command.name) is not None:
        raise InvalidRequest(
            ErrorCode.TOPIC_EXISTS, f"topic {command.name!r} already exists", subject=command.name
        )
    if (other := tables.colliding(command.name)) is not None:
        raise InvalidRequest(
            ErrorCode.INVALID_TOPIC_NAME,
            f"topic {command.name!r} collides with existing topic {other!r}: they differ only "
            "in '.' and '_'",
            subject=command.name,
        )
    assert tables.topic_by_id(command.id) is None, "topic ids are drawn at random"
    if command.id in tables.deleted:
        # Sent again by a client that did not know the outcome. Replay ignores such a topic, since
        # nodes remove the folders of a deleted one by its id.
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            "a topic with that id was created before and has been deleted",
            subject=command.name,
        )
    replicas = replica_placement.place(
        tables,
        command.id,
        first=0,
        partitions=command.partitions,
        replication_factor=command.replication_factor,
        assignments=command.assignments,
    )
    _check_partition_count(tables, len(replicas), command.name)
    check_topic_configs(command.configs, tables.cluster_configs())
    fact = commands.TopicCreated(
        command.id, command.name, replicas, command.configs, command.internal, now_ms
    )
    if len(replicas[0]) > 1:
        acks = replica_placement.acks_for(tables, command.configs, len(replicas[0]))
        disks = replica_placement.disks(tables, chained.from_iterable(replicas))
        fact = replace(fact, disks=disks, acks=acks)
    return _with_live_writers(tables, fact, chain.new_topic(fact), now_ms)


def _delete_topic(
    tables: CatalogueTables, command: commands.DeleteTopic, now_ms: int
) -> Decision[None]:
    del now_ms
    topic = tables.need_topic(command.id)
    return Decision((commands.TopicDeleted(topic.id, topic.name),), None)


def _add_partitions(
    tables: CatalogueTables, command: commands.AddPartitions, now_ms: int
) -> Decision[Topic]:
    topic = tables.need_topic(command.id)
    count = len(topic.streams)
    if command.expected != count:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"the topic has {count} partitions, not {command.expected}",
            subject=topic.name,
        )
    if command.total <= count:
        raise InvalidRequest(
            ErrorCode.INVALID_PARTITIONS,
            f"the topic has {count} partitions, so {command.total} would not be an increase",
            subject=topic.name,
        )
    replicas = replica_placement.place(
        tables,
        topic.id,
        first=count,
        partitions=command.total - count,
        replication_factor=topic.replicas_wanted,
        assignments=command.assignments,
    )
    _check_partition_count(tables, len(replicas), topic.name)
    expected = count if tables.level >= REMEMBERING_LEVEL else UNSET
    fact = commands.PartitionsAdded(topic.id, replicas, expected=expected)
    if len(replicas[0]) > 1:
        acks = replica_placement.acks_for(tables, topic.configs, len(replicas[0]))
        disks = replica_placement.disks(tables, chained.from_iterable(replicas))
        fact = replace(fact, disks=disks, acks=acks)
    return _with_live_writers(tables, fact, chain.grown(topic, fact), now_ms)


def _with_live_writers(
    tables: CatalogueTables, fact: AnyFact, topic: Topic, now_ms: int
) -> Decision[Topic]:
    """A new stream whose first replica is down is written by another from the beginning."""
    elections = tuple(
        electing.elected(tables, stream)
        for stream in topic.streams
        if stream.writer != NO_NODE and not tables.is_live(stream.writer)
    )
    if not elections:
        return Decision((fact,), topic)
    for election in elections:
        stream = topic.streams[election.stream.partition]
        topic = topic.with_stream(chain.elected(stream, election))
    return Decision((fact, WritersElected(elections, now_ms)), topic)


def _set_topic_configs(
    tables: CatalogueTables, command: commands.SetTopicConfigs, now_ms: int
) -> Decision[Topic]:
    del now_ms
    topic = tables.need_topic(command.id)
    same_configs(command.expected, topic.configs, topic.name)
    check_topic_configs(command.configs, tables.cluster_configs(), kept=topic.configs)
    fact = commands.TopicConfigsSet(topic.id, command.configs)
    return Decision((fact,), chain.configured(topic, fact))


def _restore_topics(
    tables: CatalogueTables, command: commands.RestoreTopics, now_ms: int
) -> Decision[None]:
    del now_ms
    if tables.partition_count:
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            "topics are restored into an empty catalogue only; this one holds topics",
        )
    for topic in command.topics:
        check_topic_name(topic.name)
        for stream in topic.streams:
            assert is_sound_chain(stream), f"rebuilt {topic.name}-{stream.id.partition} is invalid"
    # Deleted topics stay deleted, though their folders may still be found.
    facts: list[AnyFact] = [
        commands.TopicRestored(topic) for topic in command.topics if topic.id not in tables.deleted
    ]
    if command.next_producer_id > tables.next_producer_id:
        facts.append(commands.ProducerIdsAllocated(command.next_producer_id))
    return Decision(tuple(facts), None)


def is_sound_chain(stream: Stream) -> bool:
    """Whether the ranges of a stream form a valid chain."""
    return chain.flaw(stream) is None


# Streams


def _restart_streams(
    tables: CatalogueTables, command: commands.RestartStreams, now_ms: int
) -> Decision[tuple[Stream, ...]]:
    current_incarnation(tables, command.node, command.incarnation)
    seen: set[StreamId] = set()
    after = []
    for end in command.ends:
        stream = tables.need_stream(end.stream)
        is_alone = stream.last.replicas == (command.node,)
        if stream.writer != command.node or not is_alone or end.stream in seen:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"node {command.node} does not write it alone, or named it twice",
                subject=str(end.stream),
            )
        seen.add(end.stream)
        fits_open_range(stream, end)
        after.append(chain.restarted(stream, end, now_ms))
    if not after:
        return Decision((), ())
    fact = commands.StreamsRestarted(command.node, command.incarnation, command.ends, now_ms)
    return Decision((fact,), tuple(after))


def _trim_stream(
    tables: CatalogueTables, command: commands.TrimStream, now_ms: int
) -> Decision[Stream]:
    del now_ms
    stream = tables.need_stream(command.stream)
    current_epoch(stream, command.epoch)
    if command.start <= stream.start:
        return Decision((), stream)
    fact = commands.StreamTrimmed(command.stream, command.start)
    return Decision((fact,), chain.trimmed(stream, command.start))


def _swap_generation(
    tables: CatalogueTables, command: commands.SwapGeneration, now_ms: int
) -> Decision[Stream]:
    del now_ms
    stream = tables.need_stream(command.stream)
    current_epoch(stream, command.epoch)
    target = sealed_range(stream, command.index)
    if target.generation != command.expected_generation or command.generation <= target.generation:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"range {target.index} has generation {target.generation}; {command.generation} was "
            f"made from {command.expected_generation}",
            subject=str(stream.id),
        )
    enough_copies(stream, target, command.done)
    fact = commands.GenerationSwapped(
        command.stream,
        command.index,
        command.generation,
        command.size_bytes,
        command.batch_count,
        command.max_timestamp,
        command.max_timestamp_offset,
        command.done,
    )
    return Decision((fact,), chain.swapped(stream, fact))


def _merge_ranges(
    tables: CatalogueTables, command: commands.MergeRanges, now_ms: int
) -> Decision[Stream]:
    del now_ms
    stream = tables.need_stream(command.stream)
    current_epoch(stream, command.epoch)
    first = sealed_range(stream, command.first)
    last = sealed_range(stream, command.last)
    joined = [r for r in stream.ranges if first.index <= r.index <= last.index]
    if (
        len(joined) < 2
        # The order of a set only shows which node wrote first, which no longer matters.
        or any(set(r.replicas) != set(first.replicas) for r in joined)
        or any(r.generation >= command.generation for r in joined)
    ):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST,
            f"ranges {command.first} to {command.last} cannot become one range of generation "
            f"{command.generation}",
            subject=str(stream.id),
        )
    enough_copies(stream, first, command.done)
    fact = commands.RangesMerged(
        command.stream,
        command.first,
        command.last,
        command.generation,
        command.size_bytes,
        command.done,
    )
    return Decision((fact,), chain.merged(stream, fact))


def _check_partition_count(tables: CatalogueTables, partitions: int, topic: str) -> None:
    most = PARTITIONS_PER_NODE_MAX * max(1, len(list(tables.nodes())))
    if tables.partition_count + partitions > most:
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION,
            f"{partitions} partitions more than the {tables.partition_count} there are would "
            f"exceed {most}",
            subject=topic,
        )


_DECIDERS: dict[type, Callable[..., Decision[Any]]] = {
    commands.FormCluster: _form_cluster,
    commands.RegisterNode: _register_node,
    commands.AnnounceLevels: _announce_levels,
    commands.CreateTopic: _create_topic,
    commands.DeleteTopic: _delete_topic,
    commands.AddPartitions: _add_partitions,
    commands.SetTopicConfigs: _set_topic_configs,
    commands.AllocateProducerIds: _allocate_producer_ids,
    commands.RestartStreams: _restart_streams,
    commands.TrimStream: _trim_stream,
    commands.SwapGeneration: _swap_generation,
    commands.MergeRanges: _merge_ranges,
    commands.RestoreTopics: _restore_topics,
}
