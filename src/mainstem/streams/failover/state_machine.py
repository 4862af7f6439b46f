"""A new writer takes over a range whose writer has failed: fence, find the end, copy, seal.

    FENCING ──▶ enough clean answers ──▶ COPYING ──▶ A copies on disk ──▶ SEALING (``Sealing``)
        ▲                                    │
        └──────── a source has failed ───────┘        fenced by a newer writer: stand down

Decides only; a driver sends fences, has records copied under the new epoch (``to_disk``) and
pursues the seal. The end is a proposal until the catalogue has taken it: nothing between the old
commit and the end is visible before, and any number of fail-overs may run at once.

Guarantees:
* the end covers everything that was ever acknowledged, as long as ``R - A + 1`` replicas that lost
  nothing answer; a replica in limbo, or on another disk than was assigned, never counts;
* when all answered and too few lost nothing, the range ends at the largest end there is and is
  ``suspect``; with too few answers the stream waits, unless its topic allows an unclean election;
* a seal is requested once, when ``A`` replicas have everything on disk; when fewer are available
  for ``lone_after_ms``, when all that answered have. What was acknowledged is on ``A`` disks either
  way, some of them out of reach; only records that were not acknowledged to a client have fewer
  copies until the range is repaired.
"""

from enum import Enum

from msgspec import Struct

from mainstem.model.ids import Epoch, NodeId, Offset
from mainstem.streams.ack_policy import AckPolicy
from mainstem.streams.replica.state_machine import FenceAnswer
from mainstem.streams.writer.replication import OpenRange, SealPoint


class Phase(Enum):
    """Phase of a fail-over."""

    FENCING = "fencing"
    COPYING = "copying"
    SEALING = "sealing"
    DEPOSED = "deposed"


class FailOverSettings(Struct, frozen=True):
    """Time-outs.

    ``linger_ms``: for further answers once there are enough; all answers give the tightest end.
    ``lone_after_ms``: for ``A`` copies, before fewer are enough; None waits without limit.
    ``restart_ms``: for copies that do not come, before everything starts over.
    ``unclean_after_ms``: for enough answers, before an unclean election; None forbids it.
    """

    linger_ms: int = 50
    resend_ms: int = 300
    lone_after_ms: int | None = 3_000
    restart_ms: int = 5_000
    unclean_after_ms: int | None = None


class TakeoverRange(Struct, frozen=True):
    """The range to recover: what the catalogue knows, the new epoch, the node that takes over.

    ``directories`` names the disk that was assigned on each replica.
    """

    opened: OpenRange
    epoch: Epoch
    node: NodeId
    directories: dict[NodeId, str]


class ReplicaCopy(Struct, frozen=True):
    """Bring ``target`` from ``start`` to ``until`` with the records of ``source``."""

    target: NodeId
    source: NodeId
    start: Offset
    until: Offset


class FailOverEffects(Struct):
    """What the driver does: fence these nodes, copy, seal at ``seal`` (once), or stand down."""

    fences: list[NodeId] = []
    copies: list[ReplicaCopy] = []
    seal: SealPoint | None = None
    deposed_by: Epoch | None = None


class FailOver:
    """Decides a fail-over: fence, find the end, copy, seal.

    All times are milliseconds of one clock that never goes back.
    """

    __slots__ = (
        "_answers",
        "_begun_ms",
        "_enough_ms",
        "_held",
        "_lost",
        "_settings",
        "_taken",
        "_tried_ms",
        "_turn",
        "end",
        "phase",
        "policy",
        "suspect",
        "unclean",
    )

    def __init__(
        self, taken: TakeoverRange, policy: AckPolicy, settings: FailOverSettings, now: int
    ) -> None:
        assert len(taken.opened.replicas) == policy.replicas, "the policy is one of another range"
        assert taken.epoch > taken.opened.epoch, "a new writer has a new epoch"
        self._taken = taken
        self._settings = settings
        self.policy = policy
        self.phase = Phase.FENCING
        self.end = taken.opened.start
        self.suspect = self.unclean = False
        self._answers: dict[NodeId, FenceAnswer] = {}
        self._held: dict[NodeId, Offset] = {}
        self._lost: set[NodeId] = set()
        self._enough_ms: int | None = None
        self._begun_ms = self._tried_ms = now
        self._turn = 0

    def begin(self) -> FailOverEffects:
        """Fence all replicas."""
        return FailOverEffects(fences=list(self._taken.opened.replicas))

    def on_answer(self, replica: NodeId, answer: FenceAnswer, now: int) -> FailOverEffects:
        """A replica has given its promise and its end."""
        effects = FailOverEffects()
        if answer.epoch != self._taken.epoch:
            return effects
        if self.phase is Phase.COPYING:
            self._join(replica, answer, effects)
        if self.phase is not Phase.FENCING:
            return effects
        self._answers[replica] = answer
        if self._has_enough() and self._enough_ms is None:
            self._enough_ms = now
        if len(self._answers) == self.policy.replicas:
            self._decide(effects, now)
        return effects

    def on_fenced(self, promised: Epoch) -> FailOverEffects:
        """A replica refused: it has promised itself to ``promised``."""
        if promised <= self._taken.epoch or self.phase is Phase.DEPOSED:
            return FailOverEffects()
        self.phase = Phase.DEPOSED
        return FailOverEffects(deposed_by=promised)

    def on_copied(self, replica: NodeId, synced: Offset) -> FailOverEffects:
        """A replica has everything below ``synced`` on disk, under the new epoch."""
        effects = FailOverEffects()
        if self.phase is Phase.COPYING and replica in self._held:
            self._held[replica] = max(self._held[replica], synced)
            self._seal(effects)
        return effects

    def on_source_lost(self, source: NodeId) -> FailOverEffects:
        """Records could not be read from a source: others take its place."""
        effects = FailOverEffects()
        if self.phase is Phase.COPYING and source in self._held:
            self._lost.add(source)
            self._copy(effects)
        return effects

    def on_time(self, now: int) -> FailOverEffects:
        """Fence again, stop waiting for more answers, or start over when copies do not come."""
        effects = FailOverEffects()
        if self.phase is Phase.FENCING:
            self._fence_on_time(effects, now)
        elif self.phase is Phase.COPYING:
            self._copy_on_time(effects, now)
        return effects

    def missing(self) -> int:
        """How many clean answers are still needed; shown to operators of an offline stream."""
        return max(0, self.policy.fence_answers_min - len(self._clean()))

    def _fence_on_time(self, effects: FailOverEffects, now: int) -> None:
        if self._enough_ms is not None and now - self._enough_ms >= self._settings.linger_ms:
            self._decide(effects, now)
            return
        wait_ms = self._settings.unclean_after_ms
        if wait_ms is not None and self._own() and now - self._begun_ms >= wait_ms:
            self._decide(effects, now)
            return
        if now - self._tried_ms >= self._settings.resend_ms:
            self._tried_ms = now
            replicas = self._taken.opened.replicas
            effects.fences = [node for node in replicas if node not in self._answers]

    def _copy_on_time(self, effects: FailOverEffects, now: int) -> None:
        waited_ms = now - self._begun_ms
        wait_ms = self._settings.lone_after_ms
        if wait_ms is not None and waited_ms >= wait_ms:
            self._seal(effects, copies_min=len(self._held))
        if self.phase is Phase.COPYING and waited_ms >= self._settings.restart_ms:
            self._fence_again(now)
            effects.fences = list(self._taken.opened.replicas)
        elif self.phase is Phase.COPYING and now - self._tried_ms >= self._settings.resend_ms:
            self._tried_ms = now
            self._copy(effects)
            replicas = self._taken.opened.replicas
            effects.fences = [node for node in replicas if node not in self._answers]

    def _join(self, replica: NodeId, answer: FenceAnswer, effects: FailOverEffects) -> None:
        """An answer that comes after the decision adds a replica to copy to."""
        if replica not in self._answers and answer.directory == self._taken.directories[replica]:
            self._answers[replica] = answer
            self._held[replica] = answer.end
            self._copy(effects)
            self._seal(effects)

    def _fence_again(self, now: int) -> None:
        """As long as no seal was requested, the end may be determined again."""
        self.phase = Phase.FENCING
        self.end = self._taken.opened.start
        self.suspect = self.unclean = False
        self._answers = {}
        self._held = {}
        self._lost = set()
        self._enough_ms = None
        self._begun_ms = self._tried_ms = now

    def _own(self) -> dict[NodeId, FenceAnswer]:
        """The answers from the disks that were assigned."""
        named = self._taken.directories
        return {node: one for node, one in self._answers.items() if one.directory == named[node]}

    def _clean(self) -> list[Offset]:
        return [one.end for one in self._own().values() if not one.limbo]

    def _has_enough(self) -> bool:
        return len(self._clean()) >= self.policy.fence_answers_min

    def _decide(self, effects: FailOverEffects, now: int) -> None:
        own = {node: one.end for node, one in self._own().items()}
        if self._has_enough():
            self.end = self.policy.recovered_end(self._clean())
        else:
            self.end = max(own.values(), default=self._taken.opened.start)
            self.unclean = len(self._answers) < self.policy.replicas
            self.suspect = not self.unclean
        # A fence leaves everything it names on disk: those that reach the end are done.
        self._held = own
        self.phase = Phase.COPYING
        self._begun_ms = self._tried_ms = now
        self._copy(effects)
        self._seal(effects)

    def _copy(self, effects: FailOverEffects) -> None:
        """Copy to every replica that answered, this node first; sources take turns."""
        whole = sorted(node for node, held in self._held.items() if held >= self.end)
        sources = [node for node in whole if node not in self._lost] or whole
        targets = [node for node, held in self._held.items() if held < self.end]
        for target in sorted(targets, key=lambda node: (node != self._taken.node, node)):
            source = sources[self._turn % len(sources)]
            self._turn += 1
            effects.copies.append(ReplicaCopy(target, source, self._held[target], self.end))

    def _seal(self, effects: FailOverEffects, copies_min: int | None = None) -> None:
        done = tuple(node for node, held in self._held.items() if held >= self.end)
        if copies_min is None:
            is_loss_known = self.suspect or self.unclean
            copies_min = len(self._held) if is_loss_known else self.policy.acks
        here = self._taken.node
        if len(done) < min(copies_min, self.policy.acks):
            return
        if here in self._held and here not in done:
            return  # the new writer replays this range: it waits for its own copy
        self.phase = Phase.SEALING
        effects.seal = SealPoint(self.end, done, suspect=self.suspect, unclean=self.unclean)
