"""Random faults of the nodes of ``simulator``, one action after the other."""

import asyncio
from collections.abc import Callable
from typing import Final

from mainstem.testing.simulation.cluster.clients import SimClients
from mainstem.testing.simulation.cluster.node import corrupt_range
from mainstem.testing.simulation.cluster.nodes import SimCluster, hand_over

COUNTED: Final = ("kills", "power losses", "cuts", "rotten bits", "rolls", "moves", "trims")


class SimNodeFaults:
    """Injects faults into simulated nodes.

    Args:
        cluster: the nodes.
        clients: the clients, which know what was acknowledged.
        note: called with every action.
    """

    def __init__(
        self, cluster: SimCluster, clients: SimClients, note: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._rng = cluster.rng
        self._clients = clients
        self._note = note
        self.counts = dict.fromkeys(COUNTED, 0)
        self.trimmed = 0
        self._is_open_rotten = False

    async def inject_faults(self, seconds: float) -> None:
        """Inject faults for that many seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        acts: list[Callable[[], None]] = [
            self._kill, self._kill, self._begin, self._begin, self._cut_off, self._repair,
            self._repair, self._cut_one_way, self._roll, self._move, self._rot,
            self._trim, self._join, self._compact, self._rot_open,
        ]  # fmt: skip
        while loop.time() < until:
            await asyncio.sleep(self._rng.random() * 2)
            act = self._rng.choice(acts)
            self._note(act.__name__)
            act()
            self._cluster.check_fatal()

    def _kill(self) -> None:
        up = self._cluster.up()
        if len(up) > 1:
            # Two copies do not tolerate two power losses before all replicas are complete again.
            is_safe = self._cluster.can_lose_one_node() and not self._is_open_rotten
            power = is_safe and self._rng.random() < 0.5
            self._rng.choice(up).kill(power=power)
            self.counts["power losses" if power else "kills"] += 1

    def _begin(self) -> None:
        down = [node for node in self._cluster.nodes.values() if not node.is_up]
        if down:
            self._cluster.start(self._rng.choice(down))

    def _rot(self) -> None:
        """Flip a bit of a stopped node's replica, if all other replicas are sound."""
        down = [node for node in self._cluster.nodes.values() if not node.is_up]
        if len(down) == 1 and not self.counts["rotten bits"]:
            all_nodes = set(self._cluster.nodes)
            whole: set[int] = {
                one.index for one in self._cluster.stream.ranges if set(one.holders) == all_nodes
            }
            if corrupt_range(down[0].folder, "t", whole, self._rng):
                down[0].is_damaged = True
                self.counts["rotten bits"] += 1

    def _rot_open(self) -> None:
        """Kill a node and remove some synced data of an open range from its disk."""
        is_safe = self._cluster.can_lose_one_node() and not self.counts["rotten bits"]
        if is_safe and self._rng.random() < 0.5:
            self._is_open_rotten = self._rng.choice(self._cluster.up()).kill_and_corrupt()
            self.counts["rotten bits"] += self._is_open_rotten
            self.counts["kills"] += 1

    def _cut_off(self) -> None:
        node = self._rng.choice(list(self._cluster.nodes.values()))
        self._cluster.network.isolate(node.id)
        self._cluster.catalogue_group.isolate(self._cluster.catalogue_group.nodes[node.id])
        self.counts["cuts"] += 1

    def _cut_one_way(self) -> None:
        source, target = self._rng.sample(list(self._cluster.nodes), 2)
        self._cluster.network.cut(source, target)
        self._cluster.catalogue_group.cut.add((source, target))
        self.counts["cuts"] += 1

    def _repair(self) -> None:
        self._cluster.repair()

    def _roll(self) -> None:
        stream = self._rng.choice(self._cluster.streams() or [self._cluster.stream])
        writer = self._cluster.nodes.get(stream.writer)
        if writer is not None and writer.streams is not None:
            writer.streams.roll(stream.id)
            self.counts["rolls"] += 1

    def _move(self) -> None:
        stream = self._rng.choice(self._cluster.streams() or [self._cluster.stream])
        self.counts["moves"] += hand_over(self._cluster, stream) is not None

    def _trim(self) -> None:
        """Delete records that were acknowledged some time ago."""
        writer = self._cluster.writer()
        if writer is not None and self._clients.acked:
            before = self._rng.randint(0, max(self._clients.acked)) // 2
            self.trimmed = max(self.trimmed, before)
            writer.trim(before)
            self.counts["trims"] += 1

    def _join(self) -> None:
        """Let the writer merge its ranges if there are many."""
        writer = self._cluster.writer()
        if writer is not None:
            writer.join_ranges()

    def _compact(self) -> None:
        """Let a node compact its internal topics of groups and transactions."""
        up = [node for node in self._cluster.nodes.values() if node.streams is not None]
        if up:
            self._rng.choice(up).compact()
