"""Commands that the catalogue decides and facts that it replays.

A command asks for a change (``CreateTopic``) and names the type of its reply; a fact records what
changed (``TopicCreated``) and is all that is ever stored. Every command carries the values it is
based on (epoch, last range index, incarnation, partition count, former configs), so that an
outdated one is refused instead of applied to a different state.

Facts are stored as JSON objects whose ``type`` is the class name. Fields may be added with a
default; the meaning of a field never changes.
"""

from msgspec import UNSET, Struct, UnsetType

from mainstem.model.features import LEVELS_OF_0_1, Levels
from mainstem.model.ids import Epoch, NodeId, Offset, ProducerId, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Node, Stream, Topic
from mainstem.placement.changes.command_and_fact import Command, Fact
from mainstem.placement.changes.replication_commands import (
    Election,
    RegisteredNode,
    ReplicationFact,
)
from mainstem.placement.changes.security_commands import SecurityFact, SecurityState


class RangeEnd(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the open range of a stream ends and what it holds, as its writer found it.

    ``epoch`` and ``index`` name the range that the writer assumes to be open.
    """

    stream: StreamId
    epoch: Epoch
    index: RangeIndex
    end: Offset
    size_bytes: int = 0
    batch_count: int = 0
    max_timestamp: int = -1
    max_timestamp_offset: int = -1
    suspect: bool = False


class FormCluster(Command[None], frozen=True):
    """Give a new cluster its permanent name."""

    cluster_id: str


class RegisterNode(Command[None], frozen=True):
    """A node has started; its incarnation is larger than any it had before.

    ``levels`` are the levels of ``mainstem.version`` that it supports.
    """

    node: Node
    incarnation: int
    directory: str
    levels: Levels = LEVELS_OF_0_1


class AnnounceLevels(Command[None], frozen=True):
    """Record the levels that a registered node supports: a leader of release 0.1 did not."""

    node: NodeId
    incarnation: int
    levels: Levels


class CreateTopic(Command[Topic], frozen=True):
    """Create a topic under a fresh id. ``assignments`` lists the replicas of each partition."""

    id: TopicId
    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    assignments: tuple[tuple[NodeId, ...], ...] | None = None
    internal: bool = False


class DeleteTopic(Command[None], frozen=True):
    """Delete a topic and all its streams."""

    id: TopicId


class AddPartitions(Command[Topic], frozen=True):
    """Grow a topic from ``expected`` to ``total`` partitions."""

    id: TopicId
    expected: int
    total: int
    assignments: tuple[tuple[NodeId, ...], ...] | None = None


class SetTopicConfigs(Command[Topic], frozen=True):
    """Replace the settings of a topic, if they are still ``expected``."""

    id: TopicId
    expected: dict[str, str]
    configs: dict[str, str]


class SetNodeConfigs(Command[None], frozen=True):
    """Replace the dynamic settings of one node, or of all of them (None)."""

    node: NodeId | None
    expected: dict[str, str]
    configs: dict[str, str]


class SetGroupConfigs(Command[None], frozen=True):
    """Replace the settings of a consumer group, if they are still ``expected``."""

    group: str
    expected: dict[str, str]
    configs: dict[str, str]


class SetClientMetrics(Command[None], frozen=True):
    """Replace a subscription to clients' metrics, if it is still ``expected``."""

    name: str
    expected: dict[str, str]
    configs: dict[str, str]


class SetFeatures(Command[None], frozen=True):
    """Set the levels of features, if none has changed since ``expected_epoch``."""

    expected_epoch: int
    levels: dict[str, int]


class UnregisterNode(Command[None], frozen=True):
    """Remove a node that has failed for good; ``asked`` is the node that got the request."""

    node: NodeId
    asked: NodeId


class AllocateProducerIds(Command[tuple[ProducerId, ProducerId]], frozen=True):
    """Reserve a block of producer ids for one node: [start, until)."""

    node: NodeId
    incarnation: int
    count: int


class RestartStreams(Command[tuple[Stream, ...]], frozen=True):
    """A restarted node seals the ranges it had open at the ends it found.

    Each stream continues in a new range under the next epoch: a restarted writer never reuses one.
    Only for streams with a single replica: the end of others is determined with all replicas.
    """

    node: NodeId
    incarnation: int
    ends: tuple[RangeEnd, ...]


class SealAndCreate(Command[Stream], frozen=True):
    """Seal the open range and open the next in one step.

    A repeat with the same ``request_id`` gets the reply of the first, so that a writer that does
    not know the outcome may repeat it.

    ``done`` are the replicas that have all of the sealed range on disk. The next range is held by
    ``replicas``; None: by the target nodes of the stream, without the ``exclude``d, fenced
    and draining ones, with others in their place. ``new_writer`` hands the stream over under the
    next epoch. ``unclean``: records may be missing, because an operator allowed it.
    """

    request_id: str
    end: RangeEnd
    done: tuple[NodeId, ...] = ()
    exclude: tuple[NodeId, ...] = ()
    new_writer: NodeId | None = None
    replicas: tuple[NodeId, ...] | None = None
    unclean: bool = False


class TrimStream(Command[Stream], frozen=True):
    """Move the start of a stream up; ranges that lie wholly below it are dropped."""

    stream: StreamId
    epoch: Epoch
    start: Offset


class SwapGeneration(Command[Stream], frozen=True):
    """A sealed range has been rewritten (compacted) as ``generation``; it is read from now on.

    ``done`` are the replicas that have the new generation on disk; all that acknowledge must.
    """

    stream: StreamId
    epoch: Epoch
    index: RangeIndex
    expected_generation: int
    generation: int
    size_bytes: int
    batch_count: int
    max_timestamp: int
    max_timestamp_offset: int
    done: tuple[NodeId, ...] = ()


class MergeRanges(Command[Stream], frozen=True):
    """Neighbouring sealed ranges ``first`` to ``last`` have been joined in one folder.

    The folder is ``first`` under ``generation``; ``size_bytes`` is what it holds; ``done`` are the
    replicas that have it on disk, as in ``SwapGeneration``.
    """

    stream: StreamId
    epoch: Epoch
    first: RangeIndex
    last: RangeIndex
    generation: int
    size_bytes: int
    done: tuple[NodeId, ...] = ()


class RestoreTopics(Command[None], frozen=True):
    """Restore topics rebuilt from the folders of a lost catalogue, into an empty one only."""

    topics: tuple[Topic, ...]
    next_producer_id: ProducerId


class ClusterFormed(Fact, frozen=True):
    """The cluster has a name."""

    cluster_id: str
    at_ms: int


class NodeRegistered(Fact, frozen=True):
    """A node runs under a new incarnation; streams that it wrote with others have new writers."""

    node: Node
    incarnation: int
    directory: str
    at_ms: int
    elections: tuple[Election, ...] = ()
    levels: Levels = LEVELS_OF_0_1


class TopicCreated(Fact, frozen=True):
    """A topic exists, each partition empty at offset 0 under epoch 0.

    ``disks`` are the directories of the nodes, ``acks`` how many replicas acknowledge; both are
    left out for a topic with one replica.
    """

    id: TopicId
    name: str
    replicas: tuple[tuple[NodeId, ...], ...]
    configs: dict[str, str]
    internal: bool
    at_ms: int
    disks: tuple[tuple[NodeId, str], ...] = ()
    acks: int = 0


class TopicRestored(Fact, frozen=True):
    """A topic was rebuilt from its folders."""

    topic: Topic


class TopicDeleted(Fact, frozen=True):
    """A topic was deleted."""

    id: TopicId
    name: str


class PartitionsAdded(Fact, frozen=True):
    """A topic that had ``expected`` partitions has further ones, each empty.

    Without ``expected``, which facts of the first feature level lack, they are always added.
    """

    id: TopicId
    replicas: tuple[tuple[NodeId, ...], ...]
    disks: tuple[tuple[NodeId, str], ...] = ()
    acks: int = 0
    expected: int | UnsetType = UNSET


class TopicConfigsSet(Fact, frozen=True):
    """The new settings of a topic."""

    id: TopicId
    configs: dict[str, str]


class NodeConfigsSet(Fact, frozen=True):
    """The new dynamic settings of one node, or of all (None)."""

    node: NodeId | None
    configs: dict[str, str]


class GroupConfigsSet(Fact, frozen=True):
    """The new settings of a consumer group."""

    group: str
    configs: dict[str, str]


class ClientMetricsSet(Fact, frozen=True):
    """The new settings of a subscription to clients' metrics; none: it was removed."""

    name: str
    configs: dict[str, str]


class FeaturesSet(Fact, frozen=True):
    """The levels that were ever set, and how often levels were set."""

    epoch: int
    levels: dict[str, int]


class NodeUnregistered(Fact, frozen=True):
    """A node was removed from the cluster."""

    node: NodeId


class ProducerIdsAllocated(Fact, frozen=True):
    """Producer ids below ``until`` are allocated."""

    until: ProducerId


class StreamsRestarted(Fact, frozen=True):
    """The open ranges of a restarted node are sealed; each stream has the next epoch."""

    node: NodeId
    incarnation: int
    ends: tuple[RangeEnd, ...]
    at_ms: int


class RangeSealed(Fact, frozen=True, omit_defaults=True):
    """A range is sealed and the next one open.

    ``replicas``, ``directories`` and ``acks`` are those of the next range, ``done`` and ``unclean``
    concern the sealed one. ``writer`` and ``epoch``: the stream was handed over.
    """

    request_id: str
    end: RangeEnd
    replicas: tuple[NodeId, ...]
    at_ms: int
    done: tuple[NodeId, ...] = ()
    writer: NodeId | None = None
    epoch: Epoch | None = None
    directories: tuple[str, ...] = ()
    acks: int = 0
    unclean: bool = False


class StreamTrimmed(Fact, frozen=True):
    """The start of a stream has moved up."""

    stream: StreamId
    start: Offset


class GenerationSwapped(Fact, frozen=True):
    """A sealed range is read from a rewritten copy."""

    stream: StreamId
    index: RangeIndex
    generation: int
    size_bytes: int
    batch_count: int
    max_timestamp: int
    max_timestamp_offset: int
    done: tuple[NodeId, ...] = ()


class RangesMerged(Fact, frozen=True):
    """Neighbouring sealed ranges are one."""

    stream: StreamId
    first: RangeIndex
    last: RangeIndex
    generation: int
    size_bytes: int
    done: tuple[NodeId, ...] = ()


class CommandDecided(Fact, frozen=True, omit_defaults=True):
    """The facts before this one are the decision on the command with that id.

    A repeat of the command gets the first reply again: the topic or the streams as
    they are then, or ``value``, which is encoded as MessagePack. A topic or streams that are
    deleted become ``value`` in the state. ``dropped``: the reply was too large to be kept.
    """

    id: str
    kind: str
    topic: TopicId | None = None
    streams: tuple[StreamId, ...] = ()
    value: bytes | None = None
    dropped: bool = False


AnyFact = (
    ClusterFormed
    | NodeRegistered
    | TopicCreated
    | TopicRestored
    | TopicDeleted
    | PartitionsAdded
    | TopicConfigsSet
    | NodeConfigsSet
    | GroupConfigsSet
    | ClientMetricsSet
    | FeaturesSet
    | NodeUnregistered
    | ProducerIdsAllocated
    | StreamsRestarted
    | RangeSealed
    | StreamTrimmed
    | GenerationSwapped
    | RangesMerged
    | CommandDecided
    | ReplicationFact
    | SecurityFact
)


class CatalogueState(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole catalogue as one value: the content of a snapshot.

    ``deleted`` are the topics that were deleted last, for nodes that were down then.
    ``decided`` are the commands that were decided last, the oldest first.
    """

    cluster_id: str = ""
    nodes: tuple[RegisteredNode, ...] = ()
    topics: tuple[Topic, ...] = ()
    cluster_configs: dict[str, str] = {}
    node_configs: tuple[tuple[NodeId, dict[str, str]], ...] = ()
    group_configs: tuple[tuple[str, dict[str, str]], ...] = ()
    client_metrics: tuple[tuple[str, dict[str, str]], ...] = ()
    features: dict[str, int] = {}
    features_epoch: int = 0
    next_producer_id: ProducerId = ProducerId(0)
    seals: tuple[tuple[StreamId, str], ...] = ()
    deleted: tuple[TopicId, ...] = ()
    security: SecurityState = SecurityState()
    decided: tuple[CommandDecided, ...] = ()
