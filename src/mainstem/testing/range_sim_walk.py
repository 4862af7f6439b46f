"""A course of ``range_sim`` that a seed names: acts drawn by weight, faults among them."""

import random
from typing import TYPE_CHECKING

from mainstem.testing.range_sim import RangeSim
from mainstem.testing.range_sim_messages import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

# Longer bags make every message old: messages beyond it are dropped first.
_BAG_MAX = 60


class Walk:
    """Draws act after act; the same seed gives the same course."""

    def __init__(self, settings: Settings, seed: int, faults: float = 1.0) -> None:
        self.sim = RangeSim(settings)
        self._random = random.Random(seed)  # noqa: S311 - chance that can be repeated
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
            (0.5, self._tell),
            (0.03 * faults, self._replace_disk),
        )

    def run(self, steps: int) -> None:
        """Take so many steps, then let everything heal."""
        weights = [weight for weight, _ in self._acts]
        for _, act in self._random.choices(self._acts, weights, k=steps):
            act()
        self.sim.settle()

    def _deliver(self) -> None:
        sim = self.sim
        while len(sim.bag) > _BAG_MAX:
            sim.drop(0)
        if sim.bag:
            # Mostly in order, so that something is ever committed.
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
        self.sim.stop(node, loses_power=self._random.random() < 0.5)

    def _elect(self) -> None:
        self.sim.elect(self._random.choice(self.sim.catalogue.stream.last.replicas))

    def _seal(self) -> None:
        roles = [role for role in self.sim.live_roles() if role.writer is not None]
        if roles:
            chosen = self._random.choice(list(self.sim.nodes))
            heir = chosen if self._random.random() < 0.3 else None
            self.sim.seal(self._random.choice(roles), new_writer=heir)

    def _reconnect(self) -> None:
        role = self._random.choice(self.sim.roles)
        self.sim.reconnect(role, self._random.choice(list(self.sim.nodes)))

    def _tell(self) -> None:
        self.sim.tell_sealed(self._random.choice(list(self.sim.nodes)))

    def _replace_disk(self) -> None:
        self.sim.replace_disk(self._random.choice(list(self.sim.nodes)))
