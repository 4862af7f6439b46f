"""Leases and the placement leader on three nodes: real Raft drivers under virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mainstem.cluster.peers.frames import Chunk, Service
from mainstem.cluster.peers.refusals import Unreachable, decode_error, encode_error
from mainstem.cluster.raft.doors_driver import StateMachine
from mainstem.cluster.raft.driver import RaftDriver
from mainstem.cluster.raft.messages import founding
from mainstem.model.errors import Corrupt, Fenced, MainstemError
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NO_NODE, NodeId, Offset, TopicId
from mainstem.model.metadata import Node as Member
from mainstem.model.metadata import Stream
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.group_service import GroupPlacementService
from mainstem.placement.leases import NORMAL
from mainstem.placement.leases_service import LeaseHooks, LeasesService
from mainstem.placement.placing import Placing, PlacingSettings, RollOrder
from mainstem.placement.placing_driver import PlacingDriver
from mainstem.placement.records import (
    CreateTopic,
    FormCluster,
    RangeEnd,
    RegisterNode,
    SealAndCreate,
)
from mainstem.testing.raft_cluster import LoopClock, Node, RaftCluster, SimulatedLoop

FOUNDERS = (NodeId(1), NodeId(2), NodeId(3))
TOPIC = TopicId(bytes(16))


class Town(RaftCluster):
    """Nodes with a catalogue, leases and a placement leader, that roll when they are told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Random(1))
        self.services: dict[NodeId, GroupPlacementService] = {}
        self.leases: dict[NodeId, LeasesService] = {}
        self.tasks: dict[NodeId, list[asyncio.Task[None]]] = {}
        self.superseded: list[NodeId] = []
        self.silent: set[NodeId] = set()
        self.rolls = 0
        self.machines_answer = False
        self.placings: dict[NodeId, PlacingDriver] = {}

    def new_machine(self, node: Node) -> StateMachine:
        service = GroupPlacementService(
            Catalogue(),
            LoopClock(),
            lambda error: setattr(node, "fatal", error),
            ask=lambda to, data, timeout_s: self.decided(node.id, to, data, timeout_s),
        )
        self.services[node.id] = service
        return service

    def start(self, node: Node) -> RaftDriver:
        driver = super().start(node)
        self.services[node.id].attach(driver)
        return driver

    async def decided(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        self.reach(asker, to)
        async with asyncio.timeout(timeout_s):
            return await self.services[to].decide_for(data)

    def reach(self, asker: NodeId, to: NodeId) -> None:
        if (asker, to) in self.cut or (to, asker) in self.cut or self.nodes[to].driver is None:
            raise Unreachable("cannot be reached")

    async def settle(self, node: NodeId) -> None:
        """Register a node and let it hold leases."""
        service = self.services[node]
        incarnation = service.catalogue.incarnation(node) + 1
        member = Member(node, "127.0.0.1", 9092)
        await service.submit(RegisterNode(member, incarnation, f"disk-{node}", OWN_LEVELS))
        placing = PlacingDriver(
            service,
            lambda: self.led_term(node),
            LoopClock(),
            NORMAL,
            Placing(PlacingSettings(rebalance_after_ms=None)),
            is_refused=self.is_refused,
        )
        self.placings[node] = placing
        self.nodes[node].on_role = placing.wake
        leases = LeasesService(
            (node, incarnation),
            lambda: self.leader_of(node),
            _Line(self, node),
            placing,
            LoopClock(),
            LeaseHooks(
                lambda orders: self.follow(node, orders),
                lambda refusal: self.superseded.append(node),
            ),
        )
        self.leases[node] = leases
        loop = asyncio.get_running_loop()
        self.tasks[node] = [loop.create_task(placing.run()), loop.create_task(leases.run())]

    async def is_refused(self, node: NodeId) -> bool:
        return self.machines_answer and self.nodes[node].driver is None

    def led_term(self, node: NodeId) -> int | None:
        driver = self.nodes[node].driver
        return None if driver is None else driver.state.led_term

    def leader_of(self, node: NodeId) -> NodeId:
        driver = self.nodes[node].driver
        return NO_NODE if driver is None else driver.state.lead

    def follow(self, node: NodeId, orders: Sequence[RollOrder]) -> None:
        for order in orders:
            task = asyncio.get_running_loop().create_task(self.roll(node, order))
            self.tasks[node].append(task)

    async def roll(self, node: NodeId, order: RollOrder) -> None:
        service = self.services[node]
        stream = service.catalogue.need_stream(order.stream)
        if (stream.epoch, stream.last.index) == (order.epoch, order.index):
            self.rolls += 1
            await seal(service, stream, f"roll {self.rolls}", new_writer=order.new_writer)

    def strike(self, node: NodeId) -> None:
        """As kill -9 does."""
        for task in self.tasks.pop(node, []):
            task.cancel()
        self.kill(self.nodes[node], power_loss=False)

    def tell_gone(self, gone: NodeId) -> None:
        """As connections do that end everywhere."""
        for node in self.nodes.values():
            if node.driver is not None:
                node.driver.unreachable(gone, gone=True)
                self.placings[node.id].gone(gone)

    async def end(self) -> None:
        for tasks in self.tasks.values():
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self.close()

    def stream(self, node: NodeId) -> Stream:
        return self.services[node].catalogue.need_topic(TOPIC).streams[0]


class _Line:
    """As much of ``Peers`` as a lease needs."""

    def __init__(self, town: Town, node: NodeId) -> None:
        self._town = town
        self._node = node

    async def ask(
        self, node: NodeId, service: Service, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is Service.LEASES
        await asyncio.sleep(0.002)
        if self._node in self._town.silent:
            raise Unreachable("nothing leaves this node")
        self._town.reach(self._node, node)
        try:
            body = memoryview(b"".join(map(bytes, chunks)))
            async with asyncio.timeout(timeout_s):
                answer = await self._town.leases[node].serve(self._node, body)
        except MainstemError as error:
            raise decode_error(encode_error(error)) from error
        return memoryview(b"".join(map(bytes, answer)))


async def seal(service: GroupPlacementService, stream: Stream, request: str, **more: Any) -> Stream:
    end = RangeEnd(stream.id, stream.epoch, stream.last.index, Offset(stream.last.start + 1))
    done = tuple(n for n in stream.last.replicas if service.catalogue.is_live(n))
    return await service.submit(SealAndCreate(request, end, done, **more))


Story = Callable[[Town], Coroutine[None, None, None]]


def play(folder: Path, story: Story) -> None:
    async def whole() -> None:
        town = Town(folder)
        for founder in FOUNDERS:
            town.start(town.add(founder, founding(FOUNDERS)))
        leader = town.services[(await town.wait_for_leader()).id]
        await leader.submit(FormCluster("c"))
        for founder in FOUNDERS:
            await town.settle(founder)
        await story(town)
        await town.end()

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(whole())


async def create(town: Town, *replicas: NodeId) -> None:
    service = town.services[FOUNDERS[0]]
    await service.submit(CreateTopic(TOPIC, "t", 1, 1, assignments=(replicas,)))


async def others(town: Town) -> tuple[NodeId, NodeId, NodeId]:
    """The leader and the two others."""
    leader = (await town.wait_for_leader()).id
    first, second = (node for node in FOUNDERS if node != leader)
    return leader, first, second


def test_everybody_holds_a_lease_and_nobody_is_fenced(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        await asyncio.sleep(20)
        for node in FOUNDERS:
            assert town.leases[node].holds
            assert town.leases[node].status == "live"
            assert not [k for k in town.services[node].catalogue.nodes() if k.fenced]

    play(tmp_path, story)


def test_a_dead_writer_is_fenced_and_followed(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        leader, writer, other = await others(town)
        await create(town, writer, other, leader)
        began = asyncio.get_running_loop().time()
        town.strike(writer)
        await town.wait_until(lambda: town.stream(leader).writer == other)
        assert asyncio.get_running_loop().time() - began < 2.5
        known = town.services[leader].catalogue.node(writer)
        assert known is not None
        assert known.status == "fenced"

    play(tmp_path, story)


@pytest.mark.parametrize("led", [False, True])
def test_a_process_that_is_surely_gone_is_not_waited_for(tmp_path: Path, led: bool) -> None:
    async def story(town: Town) -> None:
        town.machines_answer = True
        leader, first, second = await others(town)
        writer, heir = (leader, first) if led else (first, second)
        await create(town, writer, heir)
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        town.strike(writer)
        await town.wait_until(lambda: town.stream(second).writer == heir)
        assert asyncio.get_running_loop().time() - began < (2.2 if led else 1.0)

    play(tmp_path, story)


@pytest.mark.parametrize("led", [False, True])
def test_a_process_whose_connections_ended_is_followed_at_once(tmp_path: Path, led: bool) -> None:
    async def story(town: Town) -> None:
        town.machines_answer = True
        leader, first, second = await others(town)
        writer, heir = (leader, first) if led else (first, second)
        await create(town, writer, heir)
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        town.strike(writer)
        town.tell_gone(writer)
        await town.wait_until(lambda: town.stream(second).writer == heir)
        assert asyncio.get_running_loop().time() - began < (0.5 if led else 0.15)

    play(tmp_path, story)


def test_a_node_that_is_there_is_not_fenced_because_a_connection_ended(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        town.machines_answer = True
        leader, first, second = await others(town)
        await create(town, first, second)
        await asyncio.sleep(1)
        town.tell_gone(first)
        await asyncio.sleep(3)
        assert town.stream(leader).writer == first
        assert (await town.wait_for_leader()).id == leader

    play(tmp_path, story)


def test_a_node_that_is_started_again_is_not_taken_for_the_dead_one(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        leader, writer, other = await others(town)
        await create(town, writer, other, leader)
        town.strike(writer)
        await town.wait_until(lambda: town.stream(leader).writer == other)
        await asyncio.sleep(5)
        town.start(town.nodes[writer])
        await asyncio.sleep(2)
        member = Member(writer, "127.0.0.1", 9092)
        await town.services[leader].submit(RegisterNode(member, 2, f"disk-{writer}", OWN_LEVELS))
        # It opens its streams for a while before it asks for its first lease.
        for _ in range(13):
            await asyncio.sleep(0.1)
            known = town.services[leader].catalogue.node(writer)
            assert known is not None
            assert known.status == "live"

    play(tmp_path, story)


def test_a_dead_writer_that_led_is_fenced_by_the_next_leader(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        leader, first, second = await others(town)
        await create(town, leader, first, second)
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        town.strike(leader)
        await town.wait_until(lambda: town.stream(second).writer == first, timeout_s=10)
        assert asyncio.get_running_loop().time() - began < 3
        assert not [k for k in town.services[first].catalogue.nodes()
                    if k.fenced and k.node.id != leader]  # fmt: skip

    play(tmp_path, story)


def test_a_silent_node_loses_its_lease_before_it_is_fenced_and_gets_one_again(
    tmp_path: Path,
) -> None:
    async def story(town: Town) -> None:
        leader, silent, other = await others(town)
        await create(town, silent, other)
        town.silent.add(silent)
        await town.wait_until(lambda: not town.leases[silent].holds)
        assert town.stream(leader).writer == silent
        await town.wait_until(lambda: town.stream(leader).writer == other)
        town.silent.clear()
        await town.wait_until(lambda: town.leases[silent].holds)
        assert town.leases[silent].status == "live"
        known = town.services[leader].catalogue.node(silent)
        assert known is not None
        assert known.incarnation == 1

    play(tmp_path, story)


def test_an_isolated_leader_grants_no_lease_that_outlives_its_leadership(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        leader, first, second = await others(town)
        await create(town, leader, first, second)
        await asyncio.sleep(1)
        town.isolate(town.nodes[leader])
        await asyncio.sleep(NORMAL.lease_ms / 1000 + 0.01)
        assert not town.leases[leader].holds
        await town.wait_until(lambda: town.stream(first).writer == first, timeout_s=10)
        town.heal()
        await town.wait_until(lambda: town.leases[leader].holds)

    play(tmp_path, story)


def test_writers_are_told_to_change_their_set_and_to_hand_over(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        leader, preferred, other = await others(town)
        await create(town, preferred, other)
        town.silent.add(preferred)
        await town.wait_until(lambda: town.stream(leader).writer == other)
        await seal(town.services[other], town.stream(other), "taken over")
        # A third node takes the place of the one that is gone.
        await town.wait_until(lambda: set(town.stream(leader).last.replicas) == {other, leader},
                              timeout_s=10)  # fmt: skip
        town.silent.clear()
        await town.wait_until(
            lambda: set(town.stream(leader).last.replicas) == {preferred, other}, timeout_s=10
        )

    play(tmp_path, story)


def test_a_process_that_was_replaced_is_told_once(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        leader, old, _ = await others(town)
        member = Member(old, "127.0.0.1", 9093)
        await town.services[leader].submit(RegisterNode(member, 2, f"disk-{old}", OWN_LEVELS))
        await town.wait_until(lambda: town.superseded == [old])
        assert not town.leases[old].holds
        await asyncio.sleep(5)
        assert town.superseded == [old]

    play(tmp_path, story)


def test_what_is_not_a_renewal_is_refused(tmp_path: Path) -> None:
    async def story(town: Town) -> None:
        leader, node, _ = await others(town)
        with pytest.raises(Corrupt):
            await town.leases[leader].serve(node, memoryview(b"\xc1"))
        with pytest.raises(Fenced):
            await town.leases[leader].serve(node, memoryview(b"\x91\x00"))

    play(tmp_path, story)
