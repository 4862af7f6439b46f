"""Decisions on the writers of streams and replicas of ranges: seals, elections, copies, nodes.

Each decider returns the facts that follow and the reply, or raises a refusal.
"""

from collections.abc import Callable
from typing import Any

from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.ids import NO_NODE, Epoch, NodeId, StreamId
from mainstem.model.metadata import Range, Stream
from mainstem.placement.changes import commands
from mainstem.placement.changes import replication_commands as replication
from mainstem.placement.changes.applicability import copies_needed
from mainstem.placement.changes.commands import AnyFact
from mainstem.placement.changes.preconditions import (
    current_incarnation,
    fits_open_range,
    known_node,
    sealed_range,
)
from mainstem.placement.planning import election as electing
from mainstem.placement.planning import replica_placement
from mainstem.placement.state import chain
from mainstem.placement.state.tables import CatalogueTables

ReplicationDecision = tuple[tuple[AnyFact, ...], Any]


# Seals


def _seal_and_create(
    tables: CatalogueTables, command: commands.SealAndCreate, now_ms: int
) -> ReplicationDecision:
    end = command.end
    stream = tables.need_stream(end.stream)
    if tables.last_seal(end.stream) == command.request_id:
        return (), stream
    fits_open_range(stream, end)
    if stream.writer == NO_NODE:
        raise Fenced(ErrorCode.FENCED_EPOCH, "the stream has no writer", subject=str(stream.id))
    if not set(command.done) <= set(stream.last.replicas):
        raise _invalid(stream, f"{list(command.done)} are not all replicas of range {end.index}")
    replicas = _next_replicas(tables, stream, command)
    topic = tables.need_topic(end.stream.topic)
    several = len(replicas) > 1
    handed_over = command.new_writer is not None
    fact = commands.RangeSealed(
        command.request_id,
        end,
        replicas,
        now_ms,
        done=command.done,
        writer=command.new_writer,
        epoch=Epoch(stream.epoch + 1) if handed_over else None,
        directories=_directories(tables, replicas) if several else (),
        acks=replica_placement.acks_for(tables, topic.configs, len(replicas)) if several else 0,
        unclean=command.unclean,
    )
    return (fact,), chain.rolled(stream, fact)


def _next_replicas(
    tables: CatalogueTables, stream: Stream, command: commands.SealAndCreate
) -> tuple[NodeId, ...]:
    replicas = command.replicas
    if replicas is not None:
        [replicas] = replica_placement.checked(tables, [replicas])
    elif stream.last.replicas == stream.wanted == (stream.writer,) and not _is_moving(
        tables, stream
    ):
        replicas = stream.last.replicas  # every roll of a single node
    else:
        topic = tables.need_topic(stream.id.topic)
        replicas = replica_placement.next_set(tables, topic, stream, command.exclude)
    writer = stream.writer if command.new_writer is None else command.new_writer
    if writer not in replicas or not tables.is_live(writer):
        raise _invalid(stream, f"node {writer} cannot write to replicas {list(replicas)}")
    return replicas


def _is_moving(tables: CatalogueTables, stream: Stream) -> bool:
    known = tables.node(stream.writer)
    return known is not None and known.draining


def _directories(tables: CatalogueTables, replicas: tuple[NodeId, ...]) -> tuple[str, ...]:
    return tuple(known_node(tables, node).directory for node in replicas)


# Nodes


def _fence_node(
    tables: CatalogueTables, command: replication.FenceNode, now_ms: int
) -> ReplicationDecision:
    current_incarnation(tables, command.node, command.incarnation)
    known = known_node(tables, command.node)
    if known.fenced and (known.stopped or command.reason != replication.STOPPED):
        return (), None
    elections = () if known.fenced else tuple(electing.elections_without(tables, command.node))
    fact = replication.NodeFenced(
        command.node, command.incarnation, command.reason, elections, now_ms
    )
    return (fact,), None


def _unfence_node(
    tables: CatalogueTables, command: replication.UnfenceNode, now_ms: int
) -> ReplicationDecision:
    current_incarnation(tables, command.node, command.incarnation)
    known = known_node(tables, command.node)
    if not known.fenced:
        return (), None
    elections = electing.elections_with(tables, command.node, known.directory, restarted=False)
    fact = replication.NodeUnfenced(command.node, command.incarnation, tuple(elections), now_ms)
    return (fact,), None


def _drain_node(
    tables: CatalogueTables, command: replication.DrainNode | replication.UndrainNode, now_ms: int
) -> ReplicationDecision:
    draining = isinstance(command, replication.DrainNode)
    known = known_node(tables, command.node)
    if known.draining == draining:
        return (), None
    others = [other for other in tables.nodes() if other.node.id != command.node]
    if draining and not any(other.status == "live" for other in others):
        raise InvalidRequest(
            ErrorCode.POLICY_VIOLATION,
            "no other node can take over what it holds",
            subject=f"node {command.node}",
        )
    return (replication.NodeDraining(command.node, draining, now_ms),), None


# Elections and targets


def _elect_writers(
    tables: CatalogueTables, command: replication.ElectWriters, now_ms: int
) -> ReplicationDecision:
    # A stream that was deleted since needs no writer, and must not block the others.
    known = [stream for one in dict.fromkeys(command.streams) if (stream := tables.stream(one))]
    chosen = [
        election
        for stream in known
        if (election := _election(tables, stream, unclean=command.unclean))
    ]
    if not chosen:
        return (), ()
    fact = replication.WritersElected(tuple(chosen), now_ms)
    return (fact,), fact.elections


def _election(
    tables: CatalogueTables, stream: Stream, *, unclean: bool
) -> replication.Election | None:
    epoch = Epoch(stream.epoch + 1)
    if stream.writer == NO_NODE:
        able = electing.candidates(tables, stream)
        if able and not unclean:
            return replication.Election(stream.id, epoch, able[0])
    if unclean:
        # A writer that has sealed its range has found all records there are.
        if stream.writer != NO_NODE and not stream.is_taken_over:
            return None
        writer = electing.unclean_writer(tables, stream)
        if writer is None:
            return None
        return replication.Election(stream.id, epoch, writer, unclean=True)
    # A writer is not fenced in favour of another: records that only it has acknowledged
    # would be lost. It is ordered to hand the stream over.
    return None


def _reassign(
    tables: CatalogueTables, command: replication.ReassignPartitions, now_ms: int
) -> ReplicationDecision:
    del now_ms
    targets: dict[StreamId, tuple[NodeId, ...]] = {}
    for stream_id, replicas in command.moves:
        if command.keep_factor and tables.stream(stream_id) is None:
            continue  # planned for all topics at once, of which this one was deleted since
        stream = tables.need_stream(stream_id)
        [checked] = replica_placement.checked(
            tables, [stream.last.replicas if replicas is None else replicas]
        )
        if checked != stream.wanted:
            targets[stream_id] = checked
    if not targets:
        return (), None
    return (replication.TargetsSet(tuple(targets.items()), command.keep_factor),), None


# Copies of sealed ranges


def _replica_done(
    tables: CatalogueTables, command: replication.ReplicaDone, now_ms: int
) -> ReplicationDecision:
    del now_ms
    stream = tables.need_stream(command.stream)
    target = sealed_range(stream, command.index)
    known = known_node(tables, command.node)
    if command.node not in target.replicas and command.node not in target.replicating:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"node {command.node} is not to hold range {target.index}",
            subject=str(stream.id),
        )
    if command.directory != known.directory or command.generation != target.generation:
        raise Fenced(
            ErrorCode.FENCED_EPOCH,
            f"range {target.index} has generation {target.generation}, node {command.node} has "
            f"{command.generation}, or another disk",
            subject=str(stream.id),
        )
    if command.node in target.holders and target.directory_of(command.node) in (
        None,
        command.directory,
    ):
        return (), stream
    fact = replication.ReplicaCompleted(
        command.stream, command.index, command.node, command.directory
    )
    return (fact,), chain.completed(stream, fact)


def _replica_lost(
    tables: CatalogueTables, command: replication.ReplicaLost, now_ms: int
) -> ReplicationDecision:
    del now_ms
    stream = tables.need_stream(command.stream)
    target = sealed_range(stream, command.index)
    if command.node not in target.replicas or command.node in target.replicating:
        return (), stream
    if not [node for node in target.holders if node != command.node]:
        raise _invalid(stream, f"no other node has range {target.index}: it cannot be copied again")
    return _ordered(stream, target, command.node)


def _copy_range(
    tables: CatalogueTables, command: replication.CopyRange, now_ms: int
) -> ReplicationDecision:
    del now_ms
    stream = tables.need_stream(command.stream)
    target = sealed_range(stream, command.index)
    known_node(tables, command.node)
    if command.node in target.holders or command.node in target.replicating:
        return (), stream
    if not target.holders:
        raise _invalid(stream, f"no node is known to have all of range {target.index}")
    return _ordered(stream, target, command.node)


def _ordered(stream: Stream, target: Range, node: NodeId) -> ReplicationDecision:
    fact = replication.CopyOrdered(stream.id, target.index, node)
    return (fact,), chain.ordered(stream, fact)


def _drop_replica(
    tables: CatalogueTables, command: replication.DropReplica, now_ms: int
) -> ReplicationDecision:
    del now_ms
    stream = tables.need_stream(command.stream)
    target = sealed_range(stream, command.index)
    if command.node not in (*target.replicas, *target.replicating):
        return (), stream
    others = [node for node in target.holders if node != command.node]
    if command.node in target.replicas and len(others) < copies_needed(stream, target):
        raise _invalid(
            stream,
            f"nodes {others} have range {target.index}; without node {command.node} that is "
            "too few",
        )
    fact = replication.ReplicaDropped(command.stream, command.index, command.node)
    return (fact,), chain.dropped(stream, fact)


def _invalid(stream: Stream, cause: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_REQUEST, cause, subject=str(stream.id))


REPLICATION_DECIDERS: dict[type, Callable[[CatalogueTables, Any, int], ReplicationDecision]] = {
    commands.SealAndCreate: _seal_and_create,
    replication.FenceNode: _fence_node,
    replication.UnfenceNode: _unfence_node,
    replication.DrainNode: _drain_node,
    replication.UndrainNode: _drain_node,
    replication.ElectWriters: _elect_writers,
    replication.ReassignPartitions: _reassign,
    replication.ReplicaDone: _replica_done,
    replication.ReplicaLost: _replica_lost,
    replication.CopyRange: _copy_range,
    replication.DropReplica: _drop_replica,
}
