"""Many nodes that gossip, in one thread and in virtual time, over a network that misbehaves."""

import heapq
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from mainstem.cluster.gossip.member import (
    Address,
    Claim,
    GossipState,
    MemberChange,
    SelfDescription,
)
from mainstem.cluster.gossip.packets import Packet
from mainstem.cluster.gossip.settings import GossipSettings
from mainstem.cluster.gossip.swim import Swim, SwimEffects
from mainstem.model.ids import NodeId

Cut = Callable[[int, int, float], bool]  # from, to, now: whether nothing passes


def claim_of(node: int, incarnation: int = 0, rack: str = "") -> Claim:
    about = SelfDescription(Address("127.0.0.1", node), rack=rack)
    return Claim(NodeId(node), incarnation, GossipState.ALIVE, NodeId(node), about)


class GossipCluster:
    """Nodes 1 to ``size``; nobody knows anybody until ``join``."""

    def __init__(
        self,
        size: int,
        *,
        seed: int,
        settings: GossipSettings | None = None,
        loss: float = 0.0,
        cut: Cut = lambda sender, receiver, now: False,
    ) -> None:
        self.now = 0.0
        self.settings = settings or GossipSettings()
        self.random = random.Random(seed)
        self.loss = loss
        self.cut = cut
        self.stopped: set[int] = set()
        self.changes: list[tuple[float, int, MemberChange]] = []
        self.sent = 0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._timers: dict[int, int] = {}  # a newer timer of a node ends the one before it
        self.nodes = {node: self.new_node(node) for node in range(1, size + 1)}

    def new_node(self, node: int) -> Swim:
        chance = random.Random(self.random.random()).random
        swim = Swim(claim_of(node), self.settings, chance=chance, now_s=self.now)
        self._wake(node, swim)
        return swim

    def join(self, *, seed_node: int = 1) -> None:
        for node in self.nodes:
            if node != seed_node:
                self.exchange(node, seed_node)

    def exchange(self, node: int, other: int) -> None:
        """Two nodes compare all that they know, as they do by a stream."""
        if self._is_cut(node, other) or self._is_cut(other, node):
            return
        asked, answered = self.nodes[node].everything(), self.nodes[other].everything()
        self._carry_out(other, self.nodes[other].on_everything(asked, self.now))
        self._carry_out(node, self.nodes[node].on_everything(answered, self.now))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, act = heapq.heappop(self._events)
            act()
        self.now = until

    def stop(self, *nodes: int) -> None:
        self.stopped.update(nodes)

    def resume(self, *nodes: int) -> None:
        """What was due while a node stood still happens at once."""
        self.stopped.difference_update(nodes)
        for node in nodes:
            self._tick(node, self.nodes[node])

    def view(self, node: int) -> dict[int, GossipState]:
        return {member.node: member.state for member in self.nodes[node].members_table}

    def states_of(self, node: int) -> set[GossipState | None]:
        """What the others that run think of a node."""
        return {
            self.view(other).get(node)
            for other in self.nodes
            if other != node and other not in self.stopped
        }

    def deaths(self) -> Iterator[tuple[float, int, int]]:
        for at, by, change in self.changes:
            if change.after.state is GossipState.DEAD:
                yield at, by, change.after.node

    def _tick(self, node: int, swim: Swim) -> None:
        if node in self.stopped or self.nodes.get(node) is not swim:
            return
        self._carry_out(node, swim.on_tick(self.now))

    def _wake(self, node: int, swim: Swim) -> None:
        """A node comes back when its machine has something to do, as the driver does."""
        timer = self._timers[node] = next(self._order)

        def due() -> None:
            if self._timers[node] == timer:
                self._tick(node, swim)

        self._at(max(self.now + 1e-6, swim.next_deadline_s()), due)

    def _carry_out(self, node: int, effects: SwimEffects) -> None:
        for address, packet in effects.datagrams:
            self._send(node, address.port, packet)
        for address, number in effects.stream_pings:
            if not self._is_cut(node, address.port) and not self._is_cut(address.port, node):
                answered = partial(self.nodes[node].on_sign_of_life, number)
                self._at(self.now + 0.01, answered)
        for address in effects.exchanges:
            self.exchange(node, address.port)
        self.changes += [(self.now, node, change) for change in effects.changes]
        self._wake(node, self.nodes[node])

    def _send(self, sender: int, receiver: int, packet: Packet) -> None:
        self.sent += 1
        if self._is_cut(sender, receiver) or self.random.random() < self.loss:
            return

        def arrive() -> None:
            if receiver in self.stopped:
                return
            source = Address("127.0.0.1", sender)
            self._carry_out(receiver, self.nodes[receiver].on_packet(packet, source, self.now))

        self._at(self.now + self.random.uniform(0.0005, 0.005), arrive)

    def _is_cut(self, sender: int, receiver: int) -> bool:
        gone = {sender, receiver} & self.stopped or receiver not in self.nodes
        return bool(gone) or self.cut(sender, receiver, self.now)

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), act))
