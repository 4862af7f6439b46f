"""Commands and facts about the state of nodes, elections, and the replicas of ranges.

The rules of ``records`` hold here as well. An election names the writer of a stream and its next
epoch; the range stays open until that writer has sealed it.
"""

from typing import Final, Literal

from msgspec import Struct

from mainstem.model.features import LEVELS_OF_0_1, Levels
from mainstem.model.ids import Epoch, NodeId, RangeIndex, StreamId
from mainstem.model.metadata import Node, Stream
from mainstem.placement.changes.command_and_fact import Command, Fact

NodeStatus = Literal["live", "fenced", "draining"]

STOPPED: Final = "it stops"
"""The reason with which a node that stops in good order fences itself."""


class RegisteredNode(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The catalogue's entry of a node.

    ``fenced``: its lease has ended, so it writes nothing; ``draining``: it is to hold nothing;
    ``levels``: the levels of ``mainstem.version`` it supports; ``stopped``: it is fenced because it
    was shut down in an orderly way.
    """

    node: Node
    incarnation: int
    directory: str
    fenced: bool = False
    draining: bool = False
    levels: Levels = LEVELS_OF_0_1
    stopped: bool = False

    @property
    def status(self) -> NodeStatus:
        """The status as one word; ``fenced`` takes precedence over ``draining``."""
        if self.fenced:
            return "fenced"
        return "draining" if self.draining else "live"


class Election(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``writer`` has ``stream`` from ``epoch`` on; ``NO_NODE``: the stream is offline.

    ``unclean``: it may continue without enough answers to determine where the open range ends.
    """

    stream: StreamId
    epoch: Epoch
    writer: NodeId
    unclean: bool = False


class FenceNode(Command[None], frozen=True):
    """A node is declared dead, or stops: other nodes take over its streams."""

    node: NodeId
    incarnation: int
    reason: str = ""


class UnfenceNode(Command[None], frozen=True):
    """A fenced node, still the same process, has a lease again."""

    node: NodeId
    incarnation: int


class DrainNode(Command[None], frozen=True):
    """Move everything off a node, until ``UndrainNode``; a restart does not end that."""

    node: NodeId


class UndrainNode(Command[None], frozen=True):
    """A node may hold ranges again."""

    node: NodeId


class ElectWriters(Command[tuple[Election, ...]], frozen=True):
    """Give streams without a writer one; the reply contains those that changed.

    ``unclean``: also streams that wait for too few replicas, and an incomplete replica is
    accepted. A stream that is written is not taken from its writer: see ``RollOrder``.
    """

    streams: tuple[StreamId, ...]
    unclean: bool = False


class ReassignPartitions(Command[None], frozen=True):
    """Set the target nodes of streams, the preferred writer first; None: the current ones.

    The number of nodes becomes the topic's; ``keep_factor``: unless that has more.
    """

    moves: tuple[tuple[StreamId, tuple[NodeId, ...] | None], ...]
    keep_factor: bool = False


class ReplicaDone(Command[Stream], frozen=True):
    """A node has all of a sealed range on disk, as ``generation``."""

    stream: StreamId
    index: RangeIndex
    node: NodeId
    directory: str
    generation: int = 0


class ReplicaLost(Command[Stream], frozen=True):
    """A node has found its copy of a sealed range damaged or missing; it is to be copied again."""

    stream: StreamId
    index: RangeIndex
    node: NodeId


class CopyRange(Command[Stream], frozen=True):
    """Let a node copy a sealed range from nodes that have it."""

    stream: StreamId
    index: RangeIndex
    node: NodeId


class DropReplica(Command[Stream], frozen=True):
    """Drop a node's copy of a sealed range, if enough others have it on disk."""

    stream: StreamId
    index: RangeIndex
    node: NodeId


class NodeFenced(Fact, frozen=True):
    """A node was fenced; its streams have been given to others."""

    node: NodeId
    incarnation: int
    reason: str
    elections: tuple[Election, ...]
    at_ms: int


class NodeUnfenced(Fact, frozen=True):
    """A fenced node has a lease again and writes the streams that only it can write."""

    node: NodeId
    incarnation: int
    elections: tuple[Election, ...]
    at_ms: int


class NodeDraining(Fact, frozen=True):
    """Whether a node is to hold nothing."""

    node: NodeId
    draining: bool
    at_ms: int


class WritersElected(Fact, frozen=True):
    """Streams have new writers."""

    elections: tuple[Election, ...]
    at_ms: int


class TargetsSet(Fact, frozen=True):
    """The target nodes of streams, the preferred writer first."""

    targets: tuple[tuple[StreamId, tuple[NodeId, ...]], ...]
    keep_factor: bool = False


class ReplicaCompleted(Fact, frozen=True):
    """A node has all of a sealed range on disk."""

    stream: StreamId
    index: RangeIndex
    node: NodeId
    directory: str


class CopyOrdered(Fact, frozen=True):
    """A node is to copy a sealed range; any copy it had does not count."""

    stream: StreamId
    index: RangeIndex
    node: NodeId


class ReplicaDropped(Fact, frozen=True):
    """A node no longer holds a sealed range."""

    stream: StreamId
    index: RangeIndex
    node: NodeId


ReplicationFact = (
    NodeFenced
    | NodeUnfenced
    | NodeDraining
    | WritersElected
    | TargetsSet
    | ReplicaCompleted
    | CopyOrdered
    | ReplicaDropped
)
