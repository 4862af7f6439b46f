"""Commands and facts about nodes that come and go, elections, and who holds which range.

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
    """What the catalogue knows of a node.

    ``fenced``: its lease has ended, so it writes nothing; ``draining``: it is to hold nothing;
    ``levels``: which ones of ``mainstem.version`` it reads; ``stopped``: it is fenced because it
    stopped in good order.
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
        """In one word; who is fenced is fenced, draining or not."""
        if self.fenced:
            return "fenced"
        return "draining" if self.draining else "live"


class Election(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """``writer`` has ``stream`` from ``epoch`` on; nobody (``NO_NODE``): the stream is offline.

    ``unclean``: it may go on without the answers that tell where the open range ends.
    """

    stream: StreamId
    epoch: Epoch
    writer: NodeId
    unclean: bool = False


class FenceNode(Command[None], frozen=True):
    """A node is taken for dead, or stops: others write its streams."""

    node: NodeId
    incarnation: int
    reason: str = ""


class UnfenceNode(Command[None], frozen=True):
    """A fenced node, still the same process, has a lease again."""

    node: NodeId
    incarnation: int


class DrainNode(Command[None], frozen=True):
    """Let a node hold nothing, until ``UndrainNode``; a restart does not end that."""

    node: NodeId


class UndrainNode(Command[None], frozen=True):
    """A node may hold ranges again."""

    node: NodeId


class ElectWriters(Command[tuple[Election, ...]], frozen=True):
    """Give streams that nobody writes a writer; those that changed are answered.

    ``unclean``: also streams that wait for too few replicas, and a replica without all of it will
    do. A stream that is written is not taken from its writer: see ``RollOrder``.
    """

    streams: tuple[StreamId, ...]
    unclean: bool = False


class ReassignPartitions(Command[None], frozen=True):
    """Want streams on these nodes, the preferred writer first; None: stay where you are.

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
    """A node has found its copy of a sealed range damaged or gone; it is to be copied anew."""

    stream: StreamId
    index: RangeIndex
    node: NodeId


class CopyRange(Command[Stream], frozen=True):
    """Let a node copy a sealed range from those who have it."""

    stream: StreamId
    index: RangeIndex
    node: NodeId


class DropReplica(Command[Stream], frozen=True):
    """Let a node forget a sealed range, if enough others have it on disk."""

    stream: StreamId
    index: RangeIndex
    node: NodeId


class NodeFenced(Fact, frozen=True):
    """A node writes nothing any more; its streams have been given to others."""

    node: NodeId
    incarnation: int
    reason: str
    elections: tuple[Election, ...]
    at_ms: int


class NodeUnfenced(Fact, frozen=True):
    """A fenced node has a lease again; streams that only it can write are its own."""

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
    """Where streams are wanted, the preferred writer first."""

    targets: tuple[tuple[StreamId, tuple[NodeId, ...]], ...]
    keep_factor: bool = False


class ReplicaCompleted(Fact, frozen=True):
    """A node has all of a sealed range on disk."""

    stream: StreamId
    index: RangeIndex
    node: NodeId
    directory: str


class CopyOrdered(Fact, frozen=True):
    """A node is to copy a sealed range; whatever it had of it does not count."""

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
