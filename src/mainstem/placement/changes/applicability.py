"""Whether a recorded fact still applies to a stream: what its decision checked must still hold.

A fact that was decided on the very state that it is replayed on always applies. One that does not
is ignored by every node alike, instead of being applied to something that it was not decided for:
a seal of range n never closes range n+1.
"""

from mainstem.model.ids import NodeId, RangeIndex
from mainstem.model.metadata import Range, Stream, majority
from mainstem.placement.changes.commands import (
    GenerationSwapped,
    RangeEnd,
    RangeSealed,
    RangesMerged,
    StreamTrimmed,
)
from mainstem.placement.changes.replication_commands import (
    CopyOrdered,
    Election,
    ReplicaCompleted,
    ReplicaDropped,
)


def seals(stream: Stream, end: RangeEnd) -> bool:
    """The range that it ends is the open one, under the current epoch."""
    last = stream.last
    return (end.epoch, end.index) == (stream.epoch, last.index) and end.end >= last.start


def rolls(stream: Stream, fact: RangeSealed) -> bool:
    """It seals the open range, and every node listed as complete is one of its replicas."""
    return seals(stream, fact.end) and set(fact.done) <= set(stream.last.replicas)


def restarts(stream: Stream, node: NodeId, end: RangeEnd) -> bool:
    """The node is still the only replica, and it is the open range that ends."""
    alone = stream.writer == node and stream.last.replicas == (node,)
    return alone and seals(stream, end)


def elects(stream: Stream, election: Election) -> bool:
    """No writer was elected since under the same epoch or a later one."""
    return election.epoch > stream.epoch


def trims(stream: Stream, fact: StreamTrimmed) -> bool:
    """The stream does not start there already, or later."""
    return fact.start > stream.start


def swaps(stream: Stream, fact: GenerationSwapped) -> bool:
    """The sealed range exists in an older generation, and its replicas have the new one."""
    known = _sealed(stream, fact.index)
    return (
        known is not None
        and fact.generation > known.generation
        and set(fact.done) <= set(known.replicas)
    )


def merges(stream: Stream, fact: RangesMerged) -> bool:
    """All ranges from the first to the last exist, sealed, on the same nodes, and older."""
    ends = (_sealed(stream, fact.first), _sealed(stream, fact.last))
    if ends[0] is None or ends[1] is None or fact.first >= fact.last:
        return False
    nodes = set(ends[0].replicas)
    joined = [known for known in stream.ranges if fact.first <= known.index <= fact.last]
    return set(fact.done) <= nodes and all(
        set(known.replicas) == nodes and known.generation < fact.generation for known in joined
    )


def completes(stream: Stream, fact: ReplicaCompleted) -> bool:
    """The node is still to hold the sealed range, and is not known to have it on that disk."""
    known = _sealed(stream, fact.index)
    if known is None or fact.node not in (*known.replicas, *known.replicating):
        return False
    if fact.node not in known.holders or fact.node in known.replicating:
        return True
    return known.directory_of(fact.node) not in (None, fact.directory)


def orders(stream: Stream, fact: CopyOrdered) -> bool:
    """The node does not copy the sealed range already, and another node has it."""
    known = _sealed(stream, fact.index)
    return (
        known is not None
        and fact.node not in known.replicating
        and any(node != fact.node for node in known.holders)
    )


def drops(stream: Stream, fact: ReplicaDropped) -> bool:
    """The node is to hold the sealed range, and enough others have it on disk."""
    known = _sealed(stream, fact.index)
    if known is None or fact.node not in (*known.replicas, *known.replicating):
        return False
    others = [node for node in known.holders if node != fact.node]
    return fact.node not in known.replicas or len(others) >= copies_needed(stream, known)


def copies_needed(stream: Stream, target: Range) -> int:
    """How many complete copies of a sealed range must be left when one is dropped.

    As many as acknowledged it, or as would with a lower target number of replicas.
    """
    wanted = len(stream.wanted)
    return min(target.acks_needed, wanted if target.acks else majority(wanted))


def _sealed(stream: Stream, index: RangeIndex) -> Range | None:
    for known in stream.ranges:
        if known.index == index and not known.is_open:
            return known
    return None
