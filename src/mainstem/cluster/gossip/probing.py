"""Probes members in turn, directly and through other members.

    ping ──▶ no ack in time ──▶ indirect probes, a stream is tried ──▶ no ack either: failed

Pure. A node that is slow itself must not suspect the others: each failed round and each missing
``NACK`` of the helpers it asked lengthen its rounds, each answer shortens them (Lifeguard).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from mainstem.cluster.gossip.member import Member
from mainstem.cluster.gossip.settings import GossipSettings
from mainstem.model.ids import NodeId

Chance = Callable[[], float]
T = TypeVar("T")


class ProbeRound:
    """The probe that is under way."""

    __slots__ = (
        "asked_others_at_s",
        "ends_at_s",
        "helpers",
        "is_answered",
        "nacks",
        "number",
        "target",
    )

    def __init__(
        self, number: int, target: NodeId, asked_others_at_s: float, ends_at_s: float
    ) -> None:
        self.number = number
        self.target = target
        self.asked_others_at_s: float | None = asked_others_at_s  # None once sent
        self.ends_at_s = ends_at_s
        self.helpers = 0
        self.nacks = 0
        self.is_answered = False


class Prober:
    """The order of probes, and the health score that scales the time-outs."""

    def __init__(self, settings: GossipSettings, chance: Chance) -> None:
        self.health = 0  # 0 is healthy
        self.round: ProbeRound | None = None
        self._settings = settings
        self._chance = chance
        self._row: list[NodeId] = []
        # A random start: recorded answers to an earlier process of this node have other numbers.
        self._number = int(chance() * (1 << 32))

    def next_number(self) -> int:
        """A sequence number that no recent probe had."""
        self._number = (self._number + 1) & 0xFFFFFFFF
        return self._number

    def begin(self, members: Sequence[Member], now_s: float) -> ProbeRound | None:
        """The next member to probe: each once, in random order, then again."""
        present = {member.node for member in members if not member.state.is_gone}
        if not present:
            return None
        while True:
            if not self._row:
                self._row = shuffled([m.node for m in members if m.node in present], self._chance)
            node = self._row.pop()
            if node in present:
                break
        stretch = self.health + 1
        self.round = ProbeRound(
            self.next_number(),
            node,
            now_s + self._settings.probe_timeout_s * stretch,
            now_s + self._settings.probe_interval_s * stretch,
        )
        return self.round

    def answered(self, number: int) -> None:
        """The target answered, directly or through a helper."""
        if self.round is not None and self.round.number == number:
            self.round.is_answered = True

    def refused(self, number: int) -> None:
        """A helper answered, but has no answer from the target."""
        if self.round is not None and self.round.number == number:
            self.round.nacks += 1

    def end(self) -> NodeId | None:
        """End the round; the member that did not answer, if any."""
        done, self.round = self.round, None
        assert done is not None, "only a round that has started can end"
        if done.is_answered:
            self.adjust_health(-1)
            return None
        # Helpers that answer show that this node's network works: then the target has failed.
        self.adjust_health(done.helpers - done.nacks if done.helpers else 1)
        return done.target

    def adjust_health(self, worse: int) -> None:
        """Raise or lower the health score of this node."""
        self.health = max(0, min(self._settings.health_max - 1, self.health + worse))

    def some(self, members: Sequence[Member], count: int) -> list[Member]:
        """Some members, chosen at random."""
        return shuffled(list(members), self._chance)[:count]


def shuffled(items: list[T], chance: Chance) -> list[T]:
    """The items in random order."""
    for last in range(len(items) - 1, 0, -1):
        other = int(chance() * (last + 1))
        items[last], items[other] = items[other], items[last]
    return items
