"""Random episodes in a ``RaftCoreSimulator``; a seed repeats an episode."""

from random import Random
from typing import NamedTuple

import msgspec
from tests.kit.simulation.raft.cores import RaftCoreSimulator, SimulatedMember

from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    EntryId,
    EntryType,
    MessageType,
    RaftMessage,
)
from mainstem.cluster.raft.state import RaftSettings
from mainstem.model.ids import NodeId

CHANGES = tuple(ConfChangeType)
STABLE_ROUNDS = 400
SETTLE_ROUNDS = 50


class FaultRates(msgspec.Struct, frozen=True):
    """Probabilities of faults."""

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


class EpisodeCounts(NamedTuple):
    """Counts of events in an episode."""

    committed: int
    terms: int
    reads: int
    changes: int


def random_fault_rates(random: Random) -> FaultRates:
    """Random fault rates."""
    return FaultRates(
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


def episode(seed: int, steps: int, *, gone: float = 0.0) -> EpisodeCounts:
    """Run one episode; raises when a guarantee is violated.

    ``gone``: how often a node gets a report, true or false, that another one's process has ended.
    """
    random = Random(seed)
    fault_rates = random_fault_rates(random)
    voters = random.choice([1, 2, 3, 3, 3, 5])
    nodes = voters + (random.choice([1, 2]) if fault_rates.change else 0)

    def settings(node: NodeId) -> RaftSettings:
        return RaftSettings(
            node_id=node,
            check_quorum=random.random() < fault_rates.check_quorum,
            pre_vote=random.random() < fault_rates.pre_vote,
            inflight_max=random.choice([1, 3, 32]),
            append_bytes_max=random.choice([1, 100, 10_000]),
        )

    run = _Episode(RaftCoreSimulator(nodes, voters, random, settings), random, fault_rates, gone)
    for number in range(steps):
        run.step(number)
    run.stabilise()
    run.simulator.check_logs()
    simulator = run.simulator
    changes = [e for e in simulator.committed.values() if e.type is EntryType.EntryConfChange]
    return EpisodeCounts(
        len(simulator.committed), len(simulator.leaders), simulator.reads_done, len(changes)
    )


class _Episode:
    def __init__(
        self, simulator: RaftCoreSimulator, random: Random, fault_rates: FaultRates, gone: float
    ) -> None:
        self.simulator = simulator
        self._random = random
        self._fault_rates = fault_rates
        self._members = list(simulator.members.values())
        self._ids = list(simulator.members)
        self._isolated: NodeId | None = None
        shares = {
            "crash": fault_rates.crash,
            "tick": fault_rates.tick,
            "propose": 0.06,
            "transfer": 0.004,
            "read": fault_rates.read,
            "change": fault_rates.change,
            "compact": fault_rates.compact,
            "isolate": fault_rates.isolate,
            "unreachable": 0.004,
            "gone": gone,
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
            self.simulator.boot(member)
        elif act == "tick":
            self.simulator.tick(member)
        else:
            self._ask(act, member, number)
        if number % 64 == 0:
            self.simulator.check_logs()

    def stabilise(self) -> None:
        """Check that without faults a leader is elected and all members catch up."""
        simulator = self.simulator
        simulator.forget_lost_snapshots()
        wanted: EntryId | None = None
        for _ in range(STABLE_ROUNDS):
            simulator.tick(min(self._members, key=lambda member: member.core.next_deadline_s))
            self._settle()
            leading = [member for member in self._members if member.core.state.is_leader]
            if not leading:
                continue
            leader = max(leading, key=lambda member: member.core.state.term)
            if wanted is None or wanted.term != leader.core.state.term:
                taken = simulator.propose(leader, b"calm")
                wanted = leader.core.state.log.last_id if taken else None
            elif self._all_have(leader, wanted.index):
                return
        raise AssertionError("LIVENESS: no leader, or a member does not catch up")

    def _all_have(self, leader: SimulatedMember, index: int) -> bool:
        conf_state = leader.core.conf_state
        belong = {*conf_state.voters, *conf_state.learners}
        applied = [self.simulator.members[node].core.state.log.applied for node in belong]
        return min(applied) >= index

    def _settle(self) -> None:
        simulator = self.simulator
        for _ in range(SETTLE_ROUNDS):
            busy = False
            for member in self._members:
                if simulator.take(member) is not None:
                    simulator.finish(member)
                    busy = True
            pool, simulator.pool = simulator.pool, []
            if not pool and not busy:
                return
            for message in pool:
                simulator.deliver(message)
                if message.type is MessageType.MsgSnap:
                    simulator.snapshot_arrived(message)

    def _ask(self, act: str, member: SimulatedMember, number: int) -> None:
        random, simulator = self._random, self.simulator
        other = random.choice(self._ids)
        if act == "transfer":
            member.core.transfer_leadership(other, simulator.now_s)
        elif act == "isolate":
            self._isolated = None if self._isolated else other
        elif act == "compact":
            simulator.compact(member, keep=random.choice([0, 0, 3]))
        elif act == "unreachable":
            member.core.report_unreachable(other)
        elif act == "gone":
            # True or false: the core that gets the report clears its leader, which must be safe.
            member.core.report_unreachable(other, gone_s=simulator.now_s)
        else:
            # Ask all that consider themselves leader, and one that may not.
            change = ConfChange(random.choice(CHANGES), other)
            for one in self._members:
                if one is member or one.core.state.is_leader:
                    self._ask_leader(act, one, number, change)

    def _ask_leader(
        self, act: str, member: SimulatedMember, number: int, change: ConfChange
    ) -> None:
        if act == "propose":
            self.simulator.propose(member, b"%d" % number)
        elif act == "read":
            self.simulator.read(member)
        else:
            self.simulator.change(member, change)

    def _ready(self, member: SimulatedMember) -> None:
        self.simulator.take(member)
        if member.ready is not None and self._random.random() < 0.7:
            self.simulator.finish(member)

    def _deliver(self) -> None:
        pool = self.simulator.pool
        if not pool:
            return
        place = self._random.randrange(len(pool))
        message: RaftMessage = pool[place]
        if self._random.random() >= self._fault_rates.duplicate:
            pool[place] = pool[-1]
            pool.pop()
        apart = self._isolated in (message.to, message.from_)
        if not apart and self._random.random() >= self._fault_rates.loss:
            self.simulator.deliver(message)
        elif message.type is MessageType.MsgSnap:
            self.simulator.lose_snapshot(message)
