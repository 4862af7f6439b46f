"""Hypothesis steers a Raft group; a broken promise shrinks to a short story."""

from random import Random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.kit.simulation.raft.cores import RaftCoreSimulator, SimulatedMember

from mainstem.cluster.raft.messages import ConfChange, ConfChangeType, MessageType
from mainstem.cluster.raft.state import RaftSettings
from mainstem.model.ids import NodeId

PLACES = st.integers(0, 10_000)


class RaftMachine(RuleBasedStateMachine):
    """The simulator checks its promises itself; here is only who does what next."""

    @initialize(
        voters=st.sampled_from([1, 2, 3, 5]),
        strangers=st.integers(0, 2),
        pre_vote=st.booleans(),
        check_quorum=st.booleans(),
        inflight_max=st.integers(1, 4),
        append_bytes_max=st.sampled_from([1, 80, 10_000]),
        seed=st.integers(0, 3),
    )
    def begin(
        self,
        *,
        voters: int,
        strangers: int,
        pre_vote: bool,
        check_quorum: bool,
        inflight_max: int,
        append_bytes_max: int,
        seed: int,
    ) -> None:
        def chosen(node: NodeId) -> RaftSettings:
            return RaftSettings(
                node_id=node,
                pre_vote=pre_vote,
                check_quorum=check_quorum,
                inflight_max=inflight_max,
                append_bytes_max=append_bytes_max,
            )

        self.simulator = RaftCoreSimulator(voters + strangers, voters, Random(seed), chosen)
        self.members = list(self.simulator.members.values())
        self.value = 0

    def member(self, place: int) -> SimulatedMember:
        return self.members[place % len(self.members)]

    @rule(place=PLACES)
    def tick(self, place: int) -> None:
        self.simulator.tick(self.member(place))

    @rule(place=PLACES)
    def store(self, place: int) -> None:
        self.simulator.take(self.member(place))

    @rule(place=PLACES)
    def finish(self, place: int) -> None:
        member = self.member(place)
        if member.ready is not None:
            self.simulator.finish(member)

    @rule()
    def settle_disks(self) -> None:
        for member in self.members:
            if self.simulator.take(member) is not None:
                self.simulator.finish(member)

    @precondition(lambda self: self.simulator.pool)
    @rule(place=PLACES, again=st.booleans())
    def deliver(self, place: int, again: bool) -> None:
        pool = self.simulator.pool
        message = pool[place % len(pool)]
        if not again:
            pool.remove(message)
        self.simulator.deliver(message)

    @precondition(lambda self: self.simulator.pool)
    @rule()
    def deliver_all(self) -> None:
        pool, self.simulator.pool = self.simulator.pool, []
        for message in pool:
            self.simulator.deliver(message)

    @precondition(lambda self: self.simulator.pool)
    @rule(place=PLACES)
    def lose(self, place: int) -> None:
        message = self.simulator.pool.pop(place % len(self.simulator.pool))
        if message.type is MessageType.MsgSnap:
            self.simulator.lose_snapshot(message)

    @rule(place=PLACES)
    def crash(self, place: int) -> None:
        self.simulator.boot(self.member(place))

    @rule()
    def propose(self) -> None:
        self.value += 1
        for member in self.members:
            self.simulator.propose(member, b"%d" % self.value)

    @rule(place=PLACES)
    def read(self, place: int) -> None:
        self.simulator.read(self.member(place))

    @rule(place=PLACES, keep=st.integers(0, 2))
    def compact(self, place: int, keep: int) -> None:
        self.simulator.compact(self.member(place), keep=keep)

    @rule(kind=st.sampled_from(ConfChangeType), place=PLACES)
    def change(self, kind: ConfChangeType, place: int) -> None:
        for member in self.members:
            self.simulator.change(member, ConfChange(kind, self.member(place).id))

    @rule(to=PLACES)
    def transfer(self, to: int) -> None:
        for member in self.members:
            if member.core.state.is_leader:
                member.core.transfer_leadership(self.member(to).id, self.simulator.now_s)

    @invariant()
    def logs_match(self) -> None:
        if hasattr(self, "simulator"):
            self.simulator.check_logs()


def test_the_promises_of_raft_hold_however_it_is_steered() -> None:
    run_state_machine_as_test(
        RaftMachine,
        settings=settings(
            max_examples=60,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
