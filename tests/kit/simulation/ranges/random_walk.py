"""Random walks of ``simulator``: a seed determines a sequence of weighted actions and faults.

``python -m tests.kit.simulation.ranges.random_walk --count 1000`` runs many seeds and
prints counts.
"""

import argparse
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING

from tests.kit.simulation.ranges.messages import RangeSimSettings
from tests.kit.simulation.ranges.simulator import RangeSimulator

if TYPE_CHECKING:
    from collections.abc import Callable

# With a larger pool every message would be old: messages beyond this are dropped.
_BAG_MAX = 60


class Walk:
    """Draws one action after the other; the same seed gives the same walk."""

    def __init__(self, settings: RangeSimSettings, seed: int, faults: float = 1.0) -> None:
        self.sim = RangeSimulator(settings)
        self.seen: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._acts: tuple[tuple[float, Callable[[], None]], ...] = (
            (30.0, self._deliver),
            (14.0, self._store),
            (10.0, self._produce),
            (4.0, self._tick),
            (2.0 * faults, self._lose),
            (0.5 * faults, self._stop),
            (0.5 * faults, self._elect),
            (0.5, self._seal),
            (0.5 * faults, self._reconnect),
            (0.5, self._notify_sealed),
            (0.03 * faults, self._replace_disk),
        )

    def run(self, steps: int) -> None:
        """Take that many steps, then end all faults."""
        weights = [weight for weight, _ in self._acts]
        for _, act in self._random.choices(self._acts, weights, k=steps):
            act()
        self.sim.settle()
        self.seen["acknowledged records"] += len(self.sim.acked)
        self.seen["sealed ranges"] += len(self.sim.catalogue.ranges) - 1
        self.seen["suspect ranges"] += sum(one.suspect for one in self.sim.catalogue.ranges)

    def _deliver(self) -> None:
        sim = self.sim
        while len(sim.bag) > _BAG_MAX:
            sim.drop(0)
        if sim.bag:
            # Mostly in order, so that records are committed at all.
            place = 0 if self._random.random() < 0.6 else self._random.randrange(len(sim.bag))
            sim.deliver(place, again=self._random.random() < 0.1)

    def _store(self) -> None:
        busy = [name for name, node in self.sim.nodes.items() if node.has_work]
        if busy:
            self.sim.store(self._random.choice(busy))

    def _produce(self) -> None:
        roles = self.sim.live_roles()
        if roles:
            self.sim.produce(self._random.choice(roles), self._random.randint(1, 3))

    def _tick(self) -> None:
        self.sim.tick()

    def _lose(self) -> None:
        if self.sim.bag:
            self.sim.drop(self._random.randrange(len(self.sim.bag)))

    def _stop(self) -> None:
        node = self._random.choice(list(self.sim.nodes))
        self.seen["stops"] += 1
        self.sim.stop(node, loses_power=self._random.random() < 0.5)

    def _elect(self) -> None:
        self.seen["elections"] += 1
        self.sim.elect(self._random.choice(self.sim.catalogue.stream.last.replicas))

    def _seal(self) -> None:
        roles = [role for role in self.sim.live_roles() if role.writer is not None]
        if roles:
            chosen = self._random.choice(list(self.sim.nodes))
            successor = chosen if self._random.random() < 0.3 else None
            self.sim.seal(self._random.choice(roles), new_writer=successor)

    def _reconnect(self) -> None:
        role = self._random.choice(self.sim.roles)
        self.sim.reconnect(role, self._random.choice(list(self.sim.nodes)))

    def _notify_sealed(self) -> None:
        self.sim.notify_sealed(self._random.choice(list(self.sim.nodes)))

    def _replace_disk(self) -> None:
        self.seen["blank disks"] += 1
        self.sim.replace_disk(self._random.choice(list(self.sim.nodes)))


# R and A of consecutive seeds, in turn.
_POLICIES = ((3, 2), (3, 3), (2, 2), (1, 1), (5, 3), (2, 1))


def settings_of(seed: int) -> RangeSimSettings:
    """The settings of a seed: ack policies, spare nodes and flush policies alternate."""
    replicas, acks = _POLICIES[seed % len(_POLICIES)]
    nodes = max(replicas, 3 + seed // 6 % 2)
    return RangeSimSettings(nodes, replicas, acks, acks_unsynced=bool(seed // 12 % 2))


def main(arguments: list[str]) -> int:
    """Run the seeds [seed, seed + count); stops at the first that violates an oracle."""
    parser = argparse.ArgumentParser(description="Random walks of replicated ranges under faults.")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--count", type=int, default=1_000, help="number of seeds")
    parser.add_argument("--steps", type=int, default=1_500, help="actions per seed")
    chosen = parser.parse_args(arguments)
    seen: Counter[str] = Counter()
    for seed in range(chosen.seed, chosen.seed + chosen.count):
        walk = Walk(settings_of(seed), seed)
        try:
            walk.run(chosen.steps)
        except AssertionError as offended:
            sys.stdout.write(f"seed {seed}, {chosen.steps} steps: {offended}\n")
            return 1
        seen += walk.seen
    counts = ", ".join(f"{count:,d} {what}" for what, count in sorted(seen.items()))
    sys.stdout.write(f"{chosen.count:,d} walks without a violation: {counts}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
