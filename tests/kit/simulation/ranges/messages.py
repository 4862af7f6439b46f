"""Messages between the parties of ``simulator``, and its settings."""

from msgspec import Struct

from mainstem.model.ids import Epoch, NodeId, Offset, RangeIndex
from mainstem.model.metadata import Stream
from mainstem.streams.failover.sealing import SealRequest
from mainstem.streams.failover.state_machine import ReplicaCopy
from mainstem.streams.replica.state_machine import FenceAnswer, Refusal, ReplicaAck


class RangeSimSettings(Struct, frozen=True):
    """Number of nodes, replicas of a range, and acknowledgements to commit."""

    nodes: int = 3
    replicas: int = 3
    acks: int = 2
    acks_unsynced: bool = False


class Append(Struct, frozen=True):
    """Records for a replica."""

    epoch: Epoch
    start: Offset
    values: tuple[int, ...]
    committed: Offset
    to_disk: bool = False


class Fence(Struct, frozen=True):
    """A new writer fences a replica, which promises its epoch."""

    epoch: Epoch


class SealOutcome(Struct, frozen=True):
    """The catalogue's answer to a request to seal; no stream: the writer is deposed."""

    request_id: str
    epoch: Epoch
    stream: Stream | None


Content = (
    Append | Fence | ReplicaCopy | ReplicaAck | Refusal | FenceAnswer | SealRequest | SealOutcome
)


class RangeSimMessage(Struct, frozen=True):
    """A message to the catalogue, to a node, or to the writer of an epoch."""

    content: Content
    range_index: RangeIndex = RangeIndex(0)
    to_catalogue: bool = False
    to_node: NodeId | None = None
    to_epoch: Epoch | None = None
    sender: NodeId | None = None
