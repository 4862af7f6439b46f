"""The placement leader's actions on the current state: from the catalogue to commands. Pure.

    target of a stream ──▶ its open range ──▶ its writer ──▶ its sealed ranges ──▶ balance
     failed nodes are replaced      rolled to it       handed over    copied, then dropped

Every step looks at the catalogue alone and may be repeated, cut off or done by another leader:
commands are checked again where they are decided, and an order to a writer names the epoch and the
range it was given for. Guarantees: a copy is dropped only when every node that should have the
range has it on disk; a writer is changed only for one that lacks nothing; once nodes stop joining
and failing, the plan becomes empty.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Final

from msgspec import Struct

from mainstem.model.ids import NO_NODE, Epoch, NodeId, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Range, Stream, Topic
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.replication_commands import (
    CopyRange,
    DropReplica,
    ElectWriters,
    ReassignPartitions,
)
from mainstem.placement.planning import balancing, election, replica_placement
from mainstem.placement.planning.targets import Targets
from mainstem.placement.state.tables import CatalogueTables

READMIT_DOUBLINGS_MAX: Final = 6


class ReconcilerSettings(Struct, frozen=True):
    """Time-outs of the leader, and how much it does at once.

    ``replace_after_ms``: a node that is down for so long is replaced. ``readmit_ms``: a replica
    that a writer left behind joins the open range after so long; twice as long each time that it
    is left behind again, until a node joins or leaves.
    ``prefer_after_ms``: a preferred writer gets its stream back after so long. ``report_ms``: how
    long a replica of a range that was just sealed has to report it. ``rebalance_after_ms``:
    nothing changed for so long; None turns balancing off. ``repeat_ms``:
    an order that was not followed is repeated. ``copies_per_node_max``: a node makes a few
    copies at a time and has the next ones waiting, so that it is busy until the next step.
    """

    replace_after_ms: int = 300_000
    readmit_ms: int = 3_000
    prefer_after_ms: int = 3_000
    report_ms: int = 10_000
    rebalance_after_ms: int | None = 30_000
    repeat_ms: int = 5_000
    copies_per_node_max: int = 16
    commands_per_step_max: int = 200
    orders_per_step_max: int = 200
    moves_per_step_max: int = 50


class RollOrder(Struct, frozen=True, array_like=True):
    """The writer of a stream is to seal its open range: hand over, or continue in another set."""

    stream: StreamId
    epoch: Epoch
    index: RangeIndex
    new_writer: NodeId | None = None


class ReconcileSteps(Struct):
    """Commands to submit, and orders by the node that is to follow them."""

    commands: list[Command[Any]] = []
    orders: dict[NodeId, list[RollOrder]] = {}


class ClusterReconciler:
    """Decides the commands that bring the cluster to its target state.

    Times are milliseconds of one clock that never goes back.
    """

    def __init__(self, settings: ReconcilerSettings | None = None) -> None:
        self._settings = settings or ReconcilerSettings()
        self.begin()

    def begin(self) -> None:
        """This node leads from now on: all time-outs start over."""
        self._since: dict[Hashable, int] = {}
        self._settled: dict[TopicId, Topic] = {}
        self._nodes: tuple[Hashable, ...] = ()
        self._ordered: dict[RollOrder, int] = {}
        self._readmitted: dict[StreamId, int] = {}
        self._changed_ms: int | None = None

    def step(self, tables: CatalogueTables, now: int) -> ReconcileSteps:
        """What is to be done now."""
        known = [(k.node, k.incarnation, k.directory, k.status) for k in tables.nodes()]
        if len(known) < 2:
            return ReconcileSteps()
        turn = _Turn(tables, now, self._settings, self)
        nodes: tuple[Hashable, ...] = (*known, turn.targets.gone)
        if nodes != self._nodes:
            self._nodes = nodes
            self._settled = {}
            self._readmitted = {}
            self._changed_ms = now
        unsettled = [t for t in tables.topics() if self._settled.get(t.id) is not t]
        for topic in unsettled:
            turn.count_copies(topic)
        for topic in unsettled:
            if turn.plan_topic(topic):
                self._settled.pop(topic.id, None)
            else:
                self._settled[topic.id] = topic
        self._remember(turn)
        if not turn.is_busy and self._is_stable(now):
            limit = self._settings.moves_per_step_max
            turn.moves = list(balancing.moves(tables, limit))
        return turn.steps()

    def since(self, now: int, *key: Hashable) -> int:
        """For how long something has been present in every step, in milliseconds."""
        return now - self._since.setdefault(key, now)

    def may_order(self, order: RollOrder, now: int) -> bool:
        """Whether an order is due; it is repeated until it has been followed."""
        given = self._ordered.get(order)
        if given is not None and now - given < self._settings.repeat_ms:
            return False
        self._ordered[order] = now
        return True

    def readmit_ms(self, stream: StreamId) -> int:
        """How long a replica has to wait before it joins an open range."""
        times = min(self._readmitted.get(stream, 0), READMIT_DOUBLINGS_MAX)
        return self._settings.readmit_ms << times

    def readmitted(self, stream: StreamId) -> None:
        """A replica is to join an open range."""
        self._readmitted[stream] = self._readmitted.get(stream, 0) + 1

    def _remember(self, turn: "_Turn") -> None:
        """Forget what was not present in this step."""
        self._since = {key: at for key, at in self._since.items() if key in turn.seen}
        self._ordered = {order: at for order, at in self._ordered.items() if order in turn.seen}
        if turn.is_busy:
            self._changed_ms = turn.now

    def _is_stable(self, now: int) -> bool:
        wait_ms = self._settings.rebalance_after_ms
        if wait_ms is None or self._changed_ms is None:
            return False
        return now - self._changed_ms >= wait_ms


class _Turn:
    """One step over everything that has not settled."""

    def __init__(
        self,
        tables: CatalogueTables,
        now: int,
        settings: ReconcilerSettings,
        reconciler: ClusterReconciler,
    ) -> None:
        self.tables = tables
        self.now = now
        self.seen: set[Hashable] = set()
        self._copying: Counter[NodeId] = Counter()
        self.moves: Sequence[balancing.Move] = []
        self.is_busy = False
        self._settings = settings
        self._reconciler = reconciler
        self._commands: list[Command[Any]] = []
        self._orders: dict[NodeId, list[RollOrder]] = {}
        self._offline: list[StreamId] = []
        self._given_up: list[StreamId] = []
        self._count = 0
        self.targets = Targets(tables, self._is_gone)

    def steps(self) -> ReconcileSteps:
        commands: list[Command[Any]] = []
        if self._offline:
            commands.append(ElectWriters(tuple(self._offline)))
        if self._given_up:
            commands.append(ElectWriters(tuple(self._given_up), unclean=True))
        if self.moves:
            commands.append(ReassignPartitions(tuple(self.moves), keep_factor=True))
        return ReconcileSteps(commands + self._commands, self._orders)

    def count_copies(self, topic: Topic) -> None:
        """Count the copies that are being made; what has settled has none."""
        for stream in topic.streams:
            for known in stream.ranges:
                self._copying.update(known.replicating)

    def plan_topic(self, topic: Topic) -> bool:
        """Plan the steps for all streams of a topic; whether something is still to happen."""
        busy = False
        moves = list(self.moves)
        for stream in topic.streams:
            target = self.targets.of(topic, stream)
            if target != stream.wanted:
                busy = True
                if len(moves) < self._settings.moves_per_step_max:
                    moves.append((stream.id, target))
                continue
            is_still = self._check_open(topic, stream)
            for known in stream.ranges[:-1]:
                is_still &= self._check_sealed(stream, known)
            busy |= not is_still
        self.moves = moves
        self.is_busy |= busy
        return busy

    # The open range

    def _check_open(self, topic: Topic, stream: Stream) -> bool:
        """Whether the open range has its target replicas and its preferred writer."""
        if stream.writer == NO_NODE:
            self._check_offline(topic, stream)
            return False
        if stream.is_taken_over:
            return False
        last = stream.last
        desired = replica_placement.next_set(self.tables, topic, stream, ())
        leaving = set(last.replicas) - set(desired)
        is_blank = any(self._is_blank(last, node) for node in last.replicas)
        if leaving or is_blank:
            self._order(stream, None)
            return False
        coming = set(desired) - set(last.replicas)
        if coming:
            held = {node for known in stream.ranges for node in known.replicas}
            if coming - held or not self._stays(stream):
                self._order(stream, None)  # no replica was left behind: the stream moves
            elif self._waited(
                self._reconciler.readmit_ms(stream.id), "set", stream.id, last.index
            ) and self._order(stream, None):
                self._reconciler.readmitted(stream.id)
            return False
        return self._check_writer(stream)

    def _check_writer(self, stream: Stream) -> bool:
        preferred = election.preferred(self.tables, stream)
        if preferred == stream.writer:
            return True
        stays = self._stays(stream)
        if preferred is not None:
            wait_ms = self._settings.prefer_after_ms if stays else 0
            if self._waited(wait_ms, "writer", stream.id, preferred):
                self._order(stream, preferred)
            return False
        if not stays:
            successor = election.safe_successor(self.tables, stream)
            if successor is not None:
                self._order(stream, successor)
        return stays and not self.tables.is_live(stream.wanted[0])

    def _stays(self, stream: Stream) -> bool:
        """Whether a stream may stay with its writer."""
        known = self.tables.node(stream.writer)
        return stream.writer in stream.wanted and known is not None and not known.draining

    def _check_offline(self, topic: Topic, stream: Stream) -> None:
        if election.candidates(self.tables, stream):
            self._offline.append(stream.id)
        elif (
            replica_placement.allows_unclean(self.tables, topic.configs)
            and election.unclean_writer(self.tables, stream) is not None
        ):
            self._given_up.append(stream.id)

    def _order(self, stream: Stream, new_writer: NodeId | None) -> bool:
        """Order the writer of a stream to roll; whether the order is given now."""
        order = RollOrder(stream.id, stream.epoch, stream.last.index, new_writer)
        self.seen.add(order)
        is_full = self._count >= self._settings.orders_per_step_max
        if is_full or not self._reconciler.may_order(order, self.now):
            return False
        self._count += 1
        self._orders.setdefault(stream.writer, []).append(order)
        return True

    # Sealed ranges

    def _check_sealed(self, stream: Stream, known: Range) -> bool:
        """Whether exactly the target nodes have a sealed range."""
        wanted = stream.wanted
        missing = [node for node in wanted if node not in known.holders]
        for node in missing:
            if node not in known.replicating:
                self._copy(stream, known, node)
        extra = [n for n in (*known.replicas, *known.replicating) if n not in wanted]
        for node in dict.fromkeys(extra):
            is_idle_order = node not in known.replicas
            if is_idle_order or (not missing and node != stream.writer):
                self._command(DropReplica(stream.id, known.index, node))
        return not missing and not extra

    def _copy(self, stream: Stream, known: Range, node: NodeId) -> None:
        sources = [n for n in known.holders if self.tables.is_live(n)]
        if not self.tables.is_live(node) or not sources:
            return
        if node in known.replicas and not self._is_blank(known, node):
            # It was a replica when the range was sealed, and is about to report its copy.
            key = ("report", stream.id, known.index, node)
            if not self._waited(self._settings.report_ms, *key):
                return
        if self._copying[node] < self._settings.copies_per_node_max:
            self._copying[node] += 1
            self._command(CopyRange(stream.id, known.index, node))

    # Inside.

    def _command(self, command: Command[Any]) -> None:
        if len(self._commands) < self._settings.commands_per_step_max:
            self._commands.append(command)

    def _waited(self, wait_ms: int, *key: Hashable) -> bool:
        self.seen.add(key)
        return self._reconciler.since(self.now, *key) >= wait_ms

    def _is_blank(self, known: Range, node: NodeId) -> bool:
        """Whether a node has another disk now than the one that the range was assigned to."""
        assigned = known.directory_of(node)
        registered = self.tables.node(node)
        return registered is not None and assigned not in (None, registered.directory)

    def _is_gone(self, node: NodeId) -> bool:
        """Whether a node is to be replaced: it is unknown, draining, or down for too long."""
        known = self.tables.node(node)
        if known is None or known.draining:
            return True
        return known.fenced and self._waited(self._settings.replace_after_ms, "down", node)
