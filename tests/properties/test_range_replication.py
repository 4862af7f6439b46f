"""Whatever is lost, late, repeated, stopped or elected: what a client was told stays true."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.kit.simulation.ranges.messages import RangeSimSettings
from tests.kit.simulation.ranges.simulator import RangeSimulator

from mainstem.model.ids import NodeId


class RangeMachine(RuleBasedStateMachine):
    """Every act of the world; its oracles are looked at after each."""

    @initialize(
        replicas=st.integers(1, 5),
        acks=st.integers(1, 5),
        spare=st.integers(0, 2),
        acks_unsynced=st.booleans(),
    )
    def begin(self, replicas: int, acks: int, spare: int, *, acks_unsynced: bool) -> None:
        world = RangeSimSettings(
            replicas + spare, replicas, min(acks, replicas), acks_unsynced=acks_unsynced
        )
        self.sim = RangeSimulator(world)

    def a_node(self, number: int) -> NodeId:
        return NodeId(number % len(self.sim.nodes))

    @rule(number=st.integers(0, 9), count=st.integers(1, 5))
    @precondition(lambda self: self.sim.live_roles())
    def produce(self, number: int, count: int) -> None:
        roles = self.sim.live_roles()
        self.sim.produce(roles[-1 - number % len(roles)], count)

    @rule(place=st.integers(0, 50), again=st.booleans())
    @precondition(lambda self: self.sim.bag)
    def deliver(self, place: int, *, again: bool) -> None:
        self.sim.deliver(place % len(self.sim.bag), again=again)

    @rule(count=st.integers(1, 30))
    @precondition(lambda self: self.sim.bag)
    def deliver_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.sim.bag))):
            self.sim.deliver(0)

    @rule(place=st.integers(0, 50))
    @precondition(lambda self: self.sim.bag)
    def drop(self, place: int) -> None:
        self.sim.drop(place % len(self.sim.bag))

    @rule(number=st.integers(0, 6))
    def store(self, number: int) -> None:
        self.sim.store(self.a_node(number))

    @rule()
    def store_everything(self) -> None:
        for name, node in self.sim.nodes.items():
            while node.has_work:
                self.sim.store(name)

    @rule(by_ms=st.sampled_from([100, 500, 1_000, 5_000]))
    def time_passes(self, by_ms: int) -> None:
        self.sim.tick(by_ms)

    @rule(number=st.integers(0, 6), loses_power=st.booleans())
    def stop(self, number: int, *, loses_power: bool) -> None:
        self.sim.stop(self.a_node(number), loses_power=loses_power)

    @rule(number=st.integers(0, 6))
    @precondition(lambda self: self.sim.lost_disks < 2)
    def replace_disk(self, number: int) -> None:
        self.sim.replace_disk(self.a_node(number))

    @rule(number=st.integers(0, 6))
    def elect(self, number: int) -> None:
        replicas = self.sim.catalogue.stream.last.replicas
        self.sim.elect(replicas[number % len(replicas)])

    @rule(number=st.integers(0, 9), successor=st.none() | st.integers(0, 6))
    @precondition(lambda self: self.sim.live_roles())
    def seal(self, number: int, successor: int | None) -> None:
        roles = self.sim.live_roles()
        chosen = None if successor is None else self.a_node(successor)
        self.sim.seal(roles[-1 - number % len(roles)], new_writer=chosen)

    @rule(number=st.integers(0, 9), node=st.integers(0, 6))
    def reconnect(self, number: int, node: int) -> None:
        self.sim.reconnect(self.sim.roles[-1 - number % len(self.sim.roles)], self.a_node(node))

    @rule(number=st.integers(0, 6))
    def notify_sealed(self, number: int) -> None:
        self.sim.notify_sealed(self.a_node(number))

    def teardown(self) -> None:
        if hasattr(self, "sim"):
            self.sim.settle()


TestRangeReplication = RangeMachine.TestCase
TestRangeReplication.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
