"""Random episodes in a ``RaftWorld``: each has its own temper, and a seed brings it back."""

from random import Random
from typing import NamedTuple

import msgspec

from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    EntryType,
    Message,
    MessageType,
)
from mainstem.cluster.raft.state import RaftSettings
from mainstem.model.ids import NodeId
from mainstem.testing.raft_world import Member, RaftWorld

CHANGES = tuple(ConfChangeType)


class Temper(msgspec.Struct, frozen=True):
    """How often what goes wrong."""

    crash: float
    tick: float
    loss: float
    duplicate: float
    compact: float
    change: float
    read: float
    isolate: float
    check_quorum: float
    pre_vote: float


class Outcome(NamedTuple):
    """How much happened."""

    committed: int
    terms: int
    reads: int
    changes: int


def drawn(random: Random) -> Temper:
    """Some temper or other."""
    return Temper(
        crash=random.choice([0.0, 0.002, 0.01, 0.03]),
        tick=random.choice([0.02, 0.06, 0.15]),
        loss=random.choice([0.0, 0.05, 0.2]),
        duplicate=random.choice([0.0, 0.1]),
        compact=random.choice([0.0, 0.02]),
        change=random.choice([0.0, 0.0, 0.02, 0.08]),
        read=random.choice([0.0, 0.04]),
        isolate=random.choice([0.0, 0.002, 0.01]),
        check_quorum=random.choice([0.0, 0.5, 1.0]),
        pre_vote=random.choice([0.0, 0.3, 1.0]),
    )


def episode(seed: int, steps: int) -> Outcome:
    """One episode; raises when a promise is broken."""
    random = Random(seed)  # noqa: S311 - chance for a simulation, not for secrets
    temper = drawn(random)
    voters = random.choice([1, 2, 3, 3, 3, 5])
    nodes = voters + (random.choice([1, 2]) if temper.change else 0)

    def settings(node: NodeId) -> RaftSettings:
        return RaftSettings(
            node_id=node,
            check_quorum=random.random() < temper.check_quorum,
            pre_vote=random.random() < temper.pre_vote,
            inflight_max=random.choice([1, 3, 32]),
            append_bytes_max=random.choice([1, 100, 10_000]),
        )

    story = _Episode(RaftWorld(nodes, voters, random, settings), random, temper)
    for number in range(steps):
        story.step(number)
    story.world.check_logs()
    world = story.world
    changes = [e for e in world.committed.values() if e.type is EntryType.EntryConfChange]
    return Outcome(len(world.committed), len(world.leaders), world.reads_done, len(changes))


class _Episode:
    def __init__(self, world: RaftWorld, random: Random, temper: Temper) -> None:
        self.world = world
        self._random = random
        self._temper = temper
        self._members = list(world.members.values())
        self._ids = list(world.members)
        self._isolated: NodeId | None = None
        shares = {
            "crash": temper.crash,
            "tick": temper.tick,
            "propose": 0.06,
            "transfer": 0.004,
            "read": temper.read,
            "change": temper.change,
            "compact": temper.compact,
            "isolate": temper.isolate,
            "unreachable": 0.004,
        }
        rest = 1.0 - sum(shares.values())
        shares |= {"deliver": rest * 0.6, "ready": rest * 0.4}
        self._acts = list(shares)
        self._weights = [sum(list(shares.values())[: place + 1]) for place in range(len(shares))]

    def step(self, number: int) -> None:
        random = self._random
        [act] = random.choices(self._acts, cum_weights=self._weights)
        member = random.choice(self._members)
        if act == "deliver":
            self._deliver()
        elif act == "ready":
            self._ready(member)
        elif act == "crash":
            self.world.boot(member)
        elif act == "tick":
            self.world.tick(member)
        else:
            self._ask(act, member, number)
        if number % 64 == 0:
            self.world.check_logs()

    def _ask(self, act: str, member: Member, number: int) -> None:
        random, world = self._random, self.world
        other = random.choice(self._ids)
        if act == "propose":
            for leader in self._members:  # whoever believes to be one
                world.propose(leader, b"%d" % number)
        elif act == "read":
            for reader in self._members:
                if reader is member or reader.core.state.is_leader:
                    world.read(reader)
        elif act == "transfer":
            member.core.transfer_leadership(other, world.now_s)
        elif act == "change":
            change = ConfChange(random.choice(CHANGES), other)
            for leader in self._members:
                world.change(leader, change)
        elif act == "isolate":
            self._isolated = None if self._isolated else other
        elif act == "compact":
            world.compact(member, keep=random.choice([0, 0, 3]))
        else:
            member.core.report_unreachable(other)

    def _ready(self, member: Member) -> None:
        self.world.take(member)
        if member.ready is not None and self._random.random() < 0.7:
            self.world.finish(member)

    def _deliver(self) -> None:
        pool = self.world.pool
        if not pool:
            return
        place = self._random.randrange(len(pool))
        message: Message = pool[place]
        if self._random.random() >= self._temper.duplicate:
            pool[place] = pool[-1]
            pool.pop()
        apart = self._isolated in (message.to, message.from_)
        if not apart and self._random.random() >= self._temper.loss:
            self.world.deliver(message)
        elif message.type is MessageType.MsgSnap:
            self.world.lose_snapshot(message)
