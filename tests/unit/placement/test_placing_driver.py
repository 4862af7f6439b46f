"""Leases and the placement leader on three nodes: real Raft drivers under virtual time."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.kit.loop import virtual_time

from mainstem.cluster.peers.error_codec import Unreachable, decode_error, encode_error
from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.raft.drivers.interfaces_driver import StateMachine
from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.cluster.raft.messages import initial_state
from mainstem.model.errors import Corrupt, Fenced, MainstemError
from mainstem.model.features import OWN_LEVELS
from mainstem.model.ids import NodeId, Offset, TopicId
from mainstem.model.metadata import Node as Member
from mainstem.model.metadata import Stream
from mainstem.placement.changes.commands import (
    CreateTopic,
    FormCluster,
    RangeEnd,
    RegisterNode,
    SealAndCreate,
)
from mainstem.placement.planning.leases import NORMAL
from mainstem.placement.planning.leases_service import LeaseHooks, LeasesService
from mainstem.placement.planning.reconciler import ClusterReconciler, ReconcilerSettings, RollOrder
from mainstem.placement.planning.reconciler_driver import ClusterReconcilerDriver
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.placement.state.catalogue import Catalogue
from mainstem.testing.simulation.raft.group import LoopClock, Node, RaftCluster

pytestmark = virtual_time

FOUNDERS = (NodeId(1), NodeId(2), NodeId(3))
TOPIC = TopicId(bytes(16))


class LeaseCluster(RaftCluster):
    """Nodes with a catalogue, leases and a placement leader, that roll when they are told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Random(1))
        self.services: dict[NodeId, RaftPlacementService] = {}
        self.leases: dict[NodeId, LeasesService] = {}
        self.tasks: dict[NodeId, list[asyncio.Task[None]]] = {}
        self.superseded: list[NodeId] = []
        self.silent: set[NodeId] = set()
        self.rolls = 0
        self.machines_answer = False
        self.placings: dict[NodeId, ClusterReconcilerDriver] = {}

    def new_machine(self, node: Node) -> StateMachine:
        service = RaftPlacementService(
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
        placing = ClusterReconcilerDriver(
            service,
            lambda: self.led_term(node),
            LoopClock(),
            NORMAL,
            ClusterReconciler(ReconcilerSettings(rebalance_after_ms=None)),
            is_refused=self.is_refused,
        )
        self.placings[node] = placing
        self.nodes[node].on_role = placing.wake
        group = self.nodes[node].driver
        assert group is not None
        leases = LeasesService(
            (node, incarnation),
            group,
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

    def __init__(self, cluster: LeaseCluster, node: NodeId) -> None:
        self._town = cluster
        self._node = node

    async def ask(
        self, node: NodeId, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is PeerService.LEASES
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


async def seal(service: RaftPlacementService, stream: Stream, request: str, **more: Any) -> Stream:
    end = RangeEnd(stream.id, stream.epoch, stream.last.index, Offset(stream.last.start + 1))
    done = tuple(n for n in stream.last.replicas if service.catalogue.is_live(n))
    return await service.submit(SealAndCreate(request, end, done, **more))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LeaseCluster]:
    cluster = LeaseCluster(tmp_path)
    for founder in FOUNDERS:
        cluster.start(cluster.add(founder, initial_state(FOUNDERS)))
    leader = cluster.services[(await cluster.wait_for_leader()).id]
    await leader.submit(FormCluster("c"))
    for founder in FOUNDERS:
        await cluster.settle(founder)
    yield cluster
    await cluster.end()


async def create(cluster: LeaseCluster, *replicas: NodeId) -> None:
    service = cluster.services[FOUNDERS[0]]
    await service.submit(CreateTopic(TOPIC, "t", 1, 1, assignments=(replicas,)))


async def others(cluster: LeaseCluster) -> tuple[NodeId, NodeId, NodeId]:
    """The leader and the two others."""
    leader = (await cluster.wait_for_leader()).id
    first, second = (node for node in FOUNDERS if node != leader)
    return leader, first, second


async def test_everybody_holds_a_lease_and_nobody_is_fenced(cluster: LeaseCluster) -> None:
    await asyncio.sleep(20)
    for node in FOUNDERS:
        assert cluster.leases[node].holds
        assert cluster.leases[node].status == "live"
        assert not [k for k in cluster.services[node].catalogue.nodes() if k.fenced]


async def test_a_dead_writer_is_fenced_and_followed(cluster: LeaseCluster) -> None:
    leader, writer, other = await others(cluster)
    await create(cluster, writer, other, leader)
    began = asyncio.get_running_loop().time()
    cluster.strike(writer)
    await cluster.wait_until(lambda: cluster.stream(leader).writer == other)
    assert asyncio.get_running_loop().time() - began < 2.5
    known = cluster.services[leader].catalogue.node(writer)
    assert known is not None
    assert known.status == "fenced"


@pytest.mark.parametrize("led", [False, True])
async def test_a_process_that_is_surely_gone_is_not_waited_for(
    cluster: LeaseCluster, led: bool
) -> None:
    cluster.machines_answer = True
    leader, first, second = await others(cluster)
    writer, successor = (leader, first) if led else (first, second)
    await create(cluster, writer, successor)
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    cluster.strike(writer)
    await cluster.wait_until(lambda: cluster.stream(second).writer == successor)
    assert asyncio.get_running_loop().time() - began < (2.2 if led else 1.0)


@pytest.mark.parametrize("led", [False, True])
async def test_a_process_whose_connections_ended_is_followed_at_once(
    cluster: LeaseCluster, led: bool
) -> None:
    cluster.machines_answer = True
    leader, first, second = await others(cluster)
    writer, successor = (leader, first) if led else (first, second)
    await create(cluster, writer, successor)
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    cluster.strike(writer)
    cluster.tell_gone(writer)
    await cluster.wait_until(lambda: cluster.stream(second).writer == successor)
    assert asyncio.get_running_loop().time() - began < (0.5 if led else 0.15)


async def test_a_node_that_is_there_is_not_fenced_because_a_connection_ended(
    cluster: LeaseCluster,
) -> None:
    cluster.machines_answer = True
    leader, first, second = await others(cluster)
    await create(cluster, first, second)
    await asyncio.sleep(1)
    cluster.tell_gone(first)
    await asyncio.sleep(3)
    assert cluster.stream(leader).writer == first
    assert (await cluster.wait_for_leader()).id == leader


async def test_a_node_that_is_started_again_is_not_taken_for_the_dead_one(
    cluster: LeaseCluster,
) -> None:
    leader, writer, other = await others(cluster)
    await create(cluster, writer, other, leader)
    cluster.strike(writer)
    await cluster.wait_until(lambda: cluster.stream(leader).writer == other)
    await asyncio.sleep(5)
    cluster.start(cluster.nodes[writer])
    await asyncio.sleep(2)
    member = Member(writer, "127.0.0.1", 9092)
    await cluster.services[leader].submit(RegisterNode(member, 2, f"disk-{writer}", OWN_LEVELS))
    # It opens its streams for a while before it asks for its first lease.
    for _ in range(13):
        await asyncio.sleep(0.1)
        known = cluster.services[leader].catalogue.node(writer)
        assert known is not None
        assert known.status == "live"


async def test_a_dead_writer_that_led_is_fenced_by_the_next_leader(cluster: LeaseCluster) -> None:
    leader, first, second = await others(cluster)
    await create(cluster, leader, first, second)
    await asyncio.sleep(1)
    began = asyncio.get_running_loop().time()
    cluster.strike(leader)
    await cluster.wait_until(lambda: cluster.stream(second).writer == first, timeout_s=10)
    assert asyncio.get_running_loop().time() - began < 3
    assert not [k for k in cluster.services[first].catalogue.nodes()
                if k.fenced and k.node.id != leader]  # fmt: skip


async def test_a_silent_node_loses_its_lease_before_it_is_fenced_and_gets_one_again(
    cluster: LeaseCluster,
) -> None:
    leader, silent, other = await others(cluster)
    await create(cluster, silent, other)
    cluster.silent.add(silent)
    await cluster.wait_until(lambda: not cluster.leases[silent].holds)
    assert cluster.stream(leader).writer == silent
    await cluster.wait_until(lambda: cluster.stream(leader).writer == other)
    cluster.silent.clear()
    await cluster.wait_until(lambda: cluster.leases[silent].holds)
    assert cluster.leases[silent].status == "live"
    known = cluster.services[leader].catalogue.node(silent)
    assert known is not None
    assert known.incarnation == 1


async def test_a_lease_after_a_gap_counts_once_the_node_knows_what_was_decided_meanwhile(
    cluster: LeaseCluster,
) -> None:
    leader, silent, other = await others(cluster)
    await create(cluster, silent, other)
    await cluster.services[silent].confirm(1)
    is_going_on = stall(cluster.nodes[silent])
    cluster.silent.add(silent)
    await cluster.wait_until(lambda: cluster.stream(leader).writer == other)
    cluster.silent.clear()
    await cluster.wait_until(lambda: not fenced(cluster, leader, silent))

    for _ in range(100):
        await asyncio.sleep(0.1)
        assert not cluster.leases[silent].holds
        assert not fenced(cluster, leader, silent)  # it renews meanwhile
    assert cluster.stream(silent).writer == silent  # as far as it knows

    is_going_on.set()
    await cluster.wait_until(lambda: cluster.leases[silent].holds)
    assert cluster.stream(silent).writer == other


async def test_what_was_asked_before_a_second_gap_says_nothing_about_it(
    cluster: LeaseCluster,
) -> None:
    leader, silent, other = await others(cluster)
    await create(cluster, silent, other)
    asked = list[asyncio.Event]()

    async def confirm(timeout_s: float) -> None:
        del timeout_s
        asked.append(asyncio.Event())
        await asked[-1].wait()

    cluster.silent.add(silent)
    await cluster.wait_until(lambda: fenced(cluster, leader, silent))
    cluster.services[silent].confirm = confirm  # type: ignore[method-assign]
    cluster.silent.clear()
    await cluster.wait_until(lambda: len(asked) == 1)
    cluster.silent.add(silent)
    await cluster.wait_until(lambda: fenced(cluster, leader, silent))
    cluster.silent.clear()
    await cluster.wait_until(lambda: len(asked) == 2)

    asked[0].set()
    await asyncio.sleep(1)
    assert not cluster.leases[silent].holds
    asked[1].set()
    await asyncio.sleep(1)
    assert cluster.leases[silent].holds


async def test_a_node_asks_again_what_was_decided_until_it_is_told(cluster: LeaseCluster) -> None:
    leader, silent, _ = await others(cluster)
    cluster.silent.add(silent)
    await cluster.wait_until(lambda: fenced(cluster, leader, silent))
    answers = iter([Unreachable("no leader"), Unreachable("no leader"), None])

    async def confirm(timeout_s: float) -> None:
        del timeout_s
        await asyncio.sleep(0)
        answer = next(answers)
        if answer is not None:
            raise answer

    cluster.services[silent].confirm = confirm  # type: ignore[method-assign]
    cluster.silent.clear()
    await cluster.wait_until(lambda: cluster.leases[silent].holds)
    assert list(answers) == []


def fenced(cluster: LeaseCluster, knowing: NodeId, node: NodeId) -> bool:
    known = cluster.services[knowing].catalogue.node(node)
    return known is not None and known.fenced


def stall(node: Node) -> asyncio.Event:
    """Nothing that was asked of a node's disk is done until the event is set."""
    is_going_on = asyncio.Event()
    real = node.storage.save

    async def save(*args: Any) -> bytes | None:
        await is_going_on.wait()
        return await real(*args)

    node.storage.save = save  # type: ignore[method-assign,assignment]
    return is_going_on


async def test_an_isolated_leader_grants_no_lease_that_outlives_its_leadership(
    cluster: LeaseCluster,
) -> None:
    leader, first, second = await others(cluster)
    await create(cluster, leader, first, second)
    await asyncio.sleep(1)
    cluster.isolate(cluster.nodes[leader])
    await asyncio.sleep(NORMAL.lease_ms / 1000 + 0.01)
    assert not cluster.leases[leader].holds
    await cluster.wait_until(lambda: cluster.stream(first).writer == first, timeout_s=10)
    cluster.heal()
    await cluster.wait_until(lambda: cluster.leases[leader].holds)


async def test_writers_are_told_to_change_their_set_and_to_hand_over(cluster: LeaseCluster) -> None:
    leader, preferred, other = await others(cluster)
    await create(cluster, preferred, other)
    cluster.silent.add(preferred)
    await cluster.wait_until(lambda: cluster.stream(leader).writer == other)
    await seal(cluster.services[other], cluster.stream(other), "taken over")
    # A third node takes the place of the one that is gone.
    await cluster.wait_until(lambda: set(cluster.stream(leader).last.replicas) == {other, leader},
                          timeout_s=10)  # fmt: skip
    cluster.silent.clear()
    await cluster.wait_until(
        lambda: set(cluster.stream(leader).last.replicas) == {preferred, other}, timeout_s=10
    )


async def test_a_process_that_was_replaced_is_told_once(cluster: LeaseCluster) -> None:
    leader, old, _ = await others(cluster)
    member = Member(old, "127.0.0.1", 9093)
    await cluster.services[leader].submit(RegisterNode(member, 2, f"disk-{old}", OWN_LEVELS))
    await cluster.wait_until(lambda: cluster.superseded == [old])
    assert not cluster.leases[old].holds
    await asyncio.sleep(5)
    assert cluster.superseded == [old]


async def test_what_is_not_a_renewal_is_refused(cluster: LeaseCluster) -> None:
    leader, node, _ = await others(cluster)
    with pytest.raises(Corrupt):
        await cluster.leases[leader].serve(node, memoryview(b"\xc1"))
    with pytest.raises(Fenced):
        await cluster.leases[leader].serve(node, memoryview(b"\x91\x00"))
