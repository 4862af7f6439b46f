"""The cluster as a whole, in terms of the catalogue."""

import logging
from asyncio import sleep
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from mainstem.broker.api.cluster import ClusterOverview, FeatureUpdate, Quorum, QuorumMember
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest, Unavailable
from mainstem.model.features import check_levels, level_of
from mainstem.model.ids import NO_NODE, NO_TOPIC_ID, NodeId, StreamId
from mainstem.model.metadata import Node
from mainstem.placement.changes.commands import SetFeatures, UnregisterNode
from mainstem.placement.changes.replication_commands import (
    DrainNode,
    ElectWriters,
    ReassignPartitions,
    UndrainNode,
)
from mainstem.placement.planning.balancing import moves
from mainstem.placement.service import PlacementService
from mainstem.placement.state.catalogue import Catalogue
from mainstem.placement.state.cluster_view import (
    GossipStatus,
    RangeRow,
    incomplete,
    move_rows,
    node_rows,
    range_rows,
)

CONFLICTS_MAX = 10
REBALANCED_AT_ONCE = 1_000
HAND_OVER_S_MAX = 30.0  # requests for an election have timed out by then
# How long an answer about writers waits until an unreachable node is declared dead.
SETTLE_S = 1.0
SETTLE_PAUSE_S = 0.005
# How long metadata still lists a lost node: a client removes a node that is no longer listed, which
# librdkafka does not always survive (its issue 5511); most nodes come back. A node that stopped
# cleanly is not listed: clients with racks would stay with it.
NAMED_AFTER_LOSS_S = 30.0
_DIRECTORY_BYTES = len(NO_TOPIC_ID)

_log = logging.getLogger(__name__)


class GroupMember(Protocol):
    """One node of the group that keeps the catalogue."""

    @property
    def node_id(self) -> NodeId:
        """The id of this node."""
        ...

    @property
    def is_learner(self) -> bool:
        """Whether it has no vote."""
        ...

    @property
    def match(self) -> int | None:
        """Its last known log index."""
        ...


class GroupStatus(Protocol):
    """The state of the group, as this node sees it."""

    @property
    def lead(self) -> NodeId:
        """The node that leads the catalogue."""
        ...

    @property
    def term(self) -> int:
        """How often one was elected."""
        ...

    @property
    def last_index(self) -> int:
        """The number of the last entry."""
        ...

    @property
    def members(self) -> Sequence[GroupMember]:
        """Its members."""
        ...


Group = Callable[[], GroupStatus]
HandOver = Callable[[Sequence[StreamId], float], Awaitable[Collection[StreamId]]]


async def _no_handover(streams: Sequence[StreamId], timeout_s: float) -> set[StreamId]:
    """Move nothing: there are no other nodes."""
    del streams, timeout_s
    return set()


class ClusterAdmin:
    """The ``Cluster`` of one node.

    Args:
        placement: the placement service.
        node: which node this is and where it is reached.
        clock: the time.
        group: the group that keeps the catalogue; None: this node alone.
        ensure: creates an internal topic.
        missing: nodes that seem to be down.
    """

    def __init__(
        self,
        placement: PlacementService,
        node: Callable[[], Node],
        clock: Clock,
        *,
        group: Group | None = None,
        ensure: Callable[[str], Awaitable[None]] | None = None,
        missing: Callable[[], Collection[NodeId]] = tuple,
    ) -> None:
        self._missing = missing
        self._group = group
        self._ensure = ensure
        self._placement = placement
        self._catalogue = placement.catalogue
        self._node = node
        self._wall_ms = clock.wall_ms
        self._monotonic = clock.monotonic
        self._lost_at: dict[NodeId, float] = {}
        # The state of nodes according to gossip; a single node has none.
        self.seen: Callable[[NodeId], GossipStatus] = lambda _: GossipStatus("alive", None)
        # Has writers hand streams over to the preferred ones; returns those moved in time.
        self.hand_over: HandOver = _no_handover

    def settled(self) -> Awaitable[None] | None:
        """See ``Cluster``: a node is down, and its streams are about to be reassigned."""
        if not _is_unsettled(self._catalogue, self._missing()):
            return None
        return _settling(lambda: _is_unsettled(self._catalogue, self._missing()))

    def level(self, feature: str) -> int:
        """The current level of a feature."""
        return level_of(self._catalogue.features, feature)

    def features_epoch(self) -> int:
        """A number that grows with every change of a level."""
        return self._catalogue.features_epoch

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Change the levels of features, all or none."""
        levels = {update.name: update.level for update in updates}
        if len(levels) != len(updates):
            raise InvalidRequest(ErrorCode.INVALID_REQUEST, "a feature is named more than once")
        check_levels(levels)
        for _ in range(CONFLICTS_MAX):
            for update in updates:
                self._check_direction(update)
            command = SetFeatures(self._catalogue.features_epoch, levels)
            if validate_only:
                self._placement.check(command)
                return
            try:
                await self._placement.submit(command)
            except Fenced:
                continue
            _log.info("features are now at %s", levels)
            return
        raise Unavailable(ErrorCode.OVERLOADED, "features were changed concurrently too often")

    async def unregister(self, node: NodeId) -> None:
        """Remove a node that left for good."""
        await self._placement.submit(UnregisterNode(node, self._node().id))
        _log.info("node %d is no longer part of the cluster", node)

    async def elect(
        self, streams: Sequence[StreamId], *, unclean: bool, timeout_ms: int
    ) -> Collection[StreamId]:
        """See ``Cluster``."""
        written = [s for s in streams if not unclean and _is_written(self._catalogue, s)]
        others = tuple(dict.fromkeys(streams).keys() - set(written))
        changed: set[StreamId] = set()
        if others:
            elections = await self._placement.submit(ElectWriters(others, unclean))
            changed |= {election.stream for election in elections if election.writer != NO_NODE}
        if written:
            timeout_s = min(timeout_ms / 1000, HAND_OVER_S_MAX)
            changed.update(await self.hand_over(written, timeout_s))
        return changed

    async def reassign(self, stream: StreamId, replicas: tuple[NodeId, ...] | None) -> None:
        """Set the target replicas of a stream, the preferred writer first; None: the current."""
        await self._placement.submit(ReassignPartitions(((stream, replicas),)))

    async def drain(self, node: NodeId, *, on: bool) -> None:
        """Drain a node, or let it hold ranges again."""
        await self._placement.submit(DrainNode(node) if on else UndrainNode(node))
        _log.info("node %d is %s", node, "drained" if on else "used again")

    async def rebalance(self) -> int:
        """Balance load over nodes; returns how many partitions are moved."""
        found = moves(self._catalogue, REBALANCED_AT_ONCE)
        if found:
            await self._placement.submit(ReassignPartitions(tuple(found), keep_factor=True))
        return len(found)

    def overview(self) -> ClusterOverview:
        """An overview of nodes, leader and ranges."""
        own = self._node()
        group = None if self._group is None else self._group()
        rows = []
        for row in node_rows(self._catalogue):
            seen = self.seen(row.node)
            found = replace(row, seen=seen.seen, cpu=seen.cpu)
            is_own = row.node == own.id
            rows.append(replace(found, host=own.host, port=own.port) if is_own else found)
        return ClusterOverview(
            leader=self.controller(),
            term=self._catalogue.incarnation(own.id) if group is None else group.term,
            voters=(own.id,) if group is None else tuple(sorted(_voters(group))),
            nodes=tuple(rows),
            states={str(state): count for state, count in incomplete(self._catalogue).items()},
            moving=sum(1 for _ in move_rows(self._catalogue)),
        )

    def ranges(self, topic: str | None = None) -> Iterable[RangeRow]:
        """Every range, or those of one topic, and the nodes that hold it."""
        return range_rows(self._catalogue, topic)

    def is_live(self, node: NodeId) -> bool:
        """Whether a node is registered and not declared dead."""
        return node == self._node().id or self._catalogue.is_live(node)

    def lost_lately(self) -> Sequence[Node]:
        """See ``Cluster``: those that were declared dead recently, as this node has seen."""
        own, now = self._node().id, self._monotonic()
        lost = {
            known.node.id: known.node
            for known in self._catalogue.nodes()
            if known.fenced and not known.stopped
        }
        self._lost_at = {node: self._lost_at.get(node, now) for node in lost if node != own}
        return [lost[n] for n, since in self._lost_at.items() if now - since < NAMED_AFTER_LOSS_S]

    async def ensure_internal(self, topic: str) -> None:
        """Create an internal topic if it does not exist."""
        assert self._ensure is not None, "called only in a cluster"
        await self._ensure(topic)

    def controller(self) -> NodeId:
        """The current placement leader; -1: there is none."""
        return self._node().id if self._group is None else self._group().lead

    def quorum(self) -> Quorum:
        """The nodes that keep the catalogue."""
        own = self._node()
        if self._group is None:
            member = self._member(own, self._placement.next_index)
            epoch = self._catalogue.incarnation(own.id)
            return self._quorum(own, epoch, self._placement.next_index, (member,))
        status = self._group()
        nodes = {known.node.id: known.node for known in self._catalogue.nodes()}
        nodes[own.id] = own
        end = status.last_index + 1
        members = tuple(
            replace(
                self._member(nodes[member.node_id], _end_of(member, status, end)),
                is_voter=not member.is_learner,
            )
            for member in status.members
            if member.node_id in nodes
        )
        leader = nodes.get(status.lead)
        if leader is None:
            raise Unavailable(ErrorCode.WRITER_UNAVAILABLE, "the catalogue's group has no leader")
        return self._quorum(leader, status.term, end, members)

    def _quorum(
        self, leader: Node, epoch: int, end: int, members: tuple[QuorumMember, ...]
    ) -> Quorum:
        directory = self._member(leader, end).directory
        return Quorum(leader, epoch, end, directory, self._wall_ms(), members)

    def _member(self, node: Node, end: int) -> QuorumMember:
        directory = b""
        for known in self._catalogue.nodes():
            if known.node.id == node.id:
                directory = bytes.fromhex(known.directory)
        sound = len(directory) == _DIRECTORY_BYTES
        return QuorumMember(node, directory if sound else NO_TOPIC_ID, end)

    def _check_direction(self, update: FeatureUpdate) -> None:
        level = self.level(update.name)
        if update.level < level and not update.may_lower:
            raise InvalidRequest(
                ErrorCode.INVALID_FEATURE_LEVEL,
                f"it is at {level}, and {update.level} would be a downgrade",
                subject=update.name,
                remedy="request a downgrade",
            )
        if update.level > level and update.may_lower:
            raise InvalidRequest(
                ErrorCode.INVALID_FEATURE_LEVEL,
                f"it is at {level}, and {update.level} would not be a downgrade",
                subject=update.name,
                remedy="request an upgrade",
            )


def _voters(status: GroupStatus) -> set[NodeId]:
    return {member.node_id for member in status.members if not member.is_learner}


def _end_of(member: GroupMember, status: GroupStatus, end: int) -> int:
    """The last known log end of a member: only the leader knows those of others."""
    if member.node_id == status.lead:
        return end
    return -1 if member.match is None else member.match + 1


def _is_unsettled(catalogue: Catalogue, missing: Collection[NodeId]) -> bool:
    return any(map(catalogue.is_live, missing))


async def _settling(is_unsettled: Callable[[], bool]) -> None:
    pauses = int(SETTLE_S / SETTLE_PAUSE_S)
    while pauses and is_unsettled():
        pauses -= 1
        await sleep(SETTLE_PAUSE_S)


def _is_written(catalogue: Catalogue, stream: StreamId) -> bool:
    known = catalogue.stream(stream)
    return known is not None and known.writer != NO_NODE
