"""Real drivers and files under virtual time: what callers of the Raft group can rely on."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.kit.loop import virtual_time
from tests.unit.cluster.raft.kit import FOUR, ONE, THREE, TWO

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.drivers.interfaces_driver import DriverSettings
from mainstem.cluster.raft.drivers.node_driver import RaftDriver
from mainstem.cluster.raft.drivers.pending_driver import OutcomeUnknown
from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    ConfState,
    MessageType,
    RaftMessage,
    StateType,
    decode_message,
    encode_message,
    initial_state,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NodeId
from mainstem.testing.simulation.raft.group import Node, RaftCluster, SimulatedLoop

pytestmark = virtual_time


@asynccontextmanager
async def raft_cluster(
    disk: Path, *, voters: int = 3, settings: DriverSettings | None = None
) -> AsyncIterator[RaftCluster]:
    cluster = RaftCluster(disk, Random(1), settings=settings)
    founders = tuple(NodeId(number) for number in range(1, voters + 1))
    for founder in founders:
        cluster.start(cluster.add(founder, initial_state(founders)))
    yield cluster
    await cluster.close()


@pytest.fixture
async def cluster(disk: Path) -> AsyncIterator[RaftCluster]:
    async with raft_cluster(disk) as cluster:
        yield cluster


def running(node: Node) -> RaftDriver:
    assert node.driver is not None
    return node.driver


def others(cluster: RaftCluster, than: Node) -> list[Node]:
    return [node for node in cluster.nodes.values() if node is not than]


def data_of(node: Node) -> list[bytes]:
    return [data for _, data in node.machine.entries]


async def test_a_proposal_is_answered_once_it_is_applied(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    index = await running(leader).propose(b"hello")
    assert leader.machine.entries == [(index, b"hello")]
    await cluster.wait_until(lambda: all(data_of(n) == [b"hello"] for n in cluster.nodes.values()))


async def test_a_group_of_one_is_a_group(disk: Path) -> None:
    async with raft_cluster(disk, voters=1) as cluster:
        leader = await cluster.wait_for_leader()
        await running(leader).propose(b"alone")
        assert await running(leader).read_barrier(1.0) >= 2
        await cluster.stop(leader)
        cluster.start(leader)
        await cluster.wait_for_leader()
        await cluster.wait_until(lambda: data_of(leader) == [b"alone"])


async def test_proposals_that_gather_share_one_write(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    syncs = 0
    sync = leader.disk.sync

    def counted(fd: int) -> None:
        nonlocal syncs
        syncs += 1
        sync(fd)

    leader.storage._wal._sync = counted
    driver = running(leader)
    indexes = await asyncio.gather(*(driver.propose(b"%d" % n) for n in range(200)))
    assert indexes == sorted(indexes)
    assert syncs <= 4


async def test_a_follower_refuses_and_names_the_leader(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    follower = others(cluster, leader)[0]
    await cluster.wait_until(lambda: running(follower).status.lead == leader.id)
    with pytest.raises(NotLeader) as refused:
        await running(follower).propose(b"x")
    assert refused.value.leader == leader.id
    assert refused.value.retriable


async def test_a_decision_made_in_an_earlier_term_is_refused(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    term = running(leader).status.term
    with pytest.raises(NotLeader):
        await running(leader).propose(b"x", term=term - 1)
    assert await running(leader).propose(b"y", term=term)


async def test_another_leads_when_the_leader_is_gone_and_nothing_is_lost(
    cluster: RaftCluster,
) -> None:
    first = await cluster.wait_for_leader()
    await running(first).propose(b"kept")
    cluster.kill(first, power_loss=True)
    second = await cluster.wait_for_leader()
    assert second is not first
    await running(second).propose(b"more")
    cluster.start(first)
    await cluster.wait_until(lambda: data_of(first) == [b"kept", b"more"])
    cluster.check_agreement()


async def test_a_leader_that_is_cut_off_steps_down_and_its_proposals_are_unsettled(
    cluster: RaftCluster,
) -> None:
    old = await cluster.wait_for_leader()
    cluster.isolate(old)
    with pytest.raises(OutcomeUnknown):
        await running(old).propose(b"nobody hears")
    assert running(old).status.state is not StateType.StateLeader


async def test_a_proposal_that_lost_its_place_to_another_leader_is_refused_for_certain(
    cluster: RaftCluster,
) -> None:
    old = await cluster.wait_for_leader()
    cluster.isolate(old)
    lost = asyncio.ensure_future(running(old).propose(b"lost"))
    await asyncio.sleep(0.1)
    await cluster.wait_until(lambda: cluster.leader() not in (None, old))
    new = await cluster.wait_for_leader()
    await running(new).propose(b"won")
    cluster.heal()
    with pytest.raises(NotLeader, match="took the place"):
        await lost
    await cluster.wait_until(lambda: data_of(old) == [b"won"])


async def test_a_read_barrier_sees_what_was_committed_before_it_on_every_node(
    cluster: RaftCluster,
) -> None:
    leader = await cluster.wait_for_leader()
    await cluster.wait_until(
        lambda: all(running(n).status.lead == leader.id for n in cluster.nodes.values())
    )
    for number in range(5):
        index = await running(leader).propose(b"%d" % number)
        for node in cluster.nodes.values():
            assert await running(node).read_barrier(2.0) >= index
            assert node.machine.entries[-1][0] >= index


async def test_a_read_barrier_on_a_node_that_lags_waits_until_it_has_caught_up(
    cluster: RaftCluster,
) -> None:
    leader = await cluster.wait_for_leader()
    behind = others(cluster, leader)[0]
    cluster.isolate(behind)
    for number in range(40):
        index = await running(leader).propose(b"%04d" % number * 500)
    cluster.heal()
    assert await running(behind).read_barrier(10.0) >= index
    assert behind.machine.entries[-1][0] >= index


async def test_a_read_barrier_without_a_majority_times_out(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    cluster.isolate(leader)
    with pytest.raises(Unavailable) as refused:
        await running(leader).read_barrier(3.0)
    assert refused.value.code is ErrorCode.TIMED_OUT


async def test_leadership_is_handed_over_without_waiting_for_a_time_out(
    cluster: RaftCluster,
) -> None:
    leader = await cluster.wait_for_leader()
    successor = others(cluster, leader)[0]
    began_s = asyncio.get_running_loop().time()
    assert running(leader).transfer_leadership(successor.id)
    await cluster.wait_until(lambda: cluster.leader() is successor)
    assert asyncio.get_running_loop().time() - began_s < 0.5
    await running(successor).propose(b"mine")


async def test_a_follower_that_is_far_behind_is_sent_a_snapshot_in_pieces(disk: Path) -> None:
    settings = DriverSettings(snapshot_entries=50, keep_entries=5)

    async with raft_cluster(disk, settings=settings) as cluster:
        leader = await cluster.wait_for_leader()
        running(leader)._snapshots.sending._chunk_bytes = 100
        behind = others(cluster, leader)[0]
        cluster.isolate(behind)
        for number in range(200):
            await running(leader).propose(b"entry number %d" % number)
        assert running(leader).status.first_index > 100
        cluster.heal()
        await cluster.wait_until(lambda: len(data_of(behind)) == 200)
        assert running(behind).status.snapshot_index > 100
        cluster.check_agreement()
        cluster.kill(behind, power_loss=True)
        cluster.start(behind)
        await cluster.wait_until(lambda: len(data_of(behind)) == 200)
        cluster.check_agreement()


async def test_a_snapshot_gets_through_a_network_that_loses_pieces(disk: Path) -> None:
    settings = DriverSettings(snapshot_entries=50, keep_entries=5, chunk_timeout_s=0.2)

    async with raft_cluster(disk, settings=settings) as cluster:
        leader = await cluster.wait_for_leader()
        running(leader)._snapshots.sending._chunk_bytes = 200
        behind = others(cluster, leader)[0]
        cluster.isolate(behind)
        for number in range(120):
            await running(leader).propose(b"entry number %d" % number)
        cluster.heal()
        cluster.loss = 0.15
        await cluster.wait_until(lambda: len(data_of(behind)) == 120, timeout_s=300)
        cluster.check_agreement()


async def test_a_node_joins_as_a_learner_is_promoted_and_votes(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    await running(leader).propose(b"before")
    fourth = cluster.add(FOUR)
    cluster.start(fourth)
    learner = ConfChange(ConfChangeType.ConfChangeAddLearnerNode, FOUR)
    await running(leader).change_membership(learner)
    await cluster.wait_until(lambda: data_of(fourth) == [b"before"])
    assert fourth.members == ConfState((ONE, TWO, THREE), (FOUR,))
    await running(leader).change_membership(ConfChange(ConfChangeType.ConfChangeAddNode, FOUR))
    gone = others(cluster, leader)[0]
    cluster.kill(gone, power_loss=False)
    await running(leader).propose(b"three of four")
    await running(leader).change_membership(
        ConfChange(ConfChangeType.ConfChangeRemoveNode, gone.id)
    )
    assert gone.id not in {member.node_id for member in running(leader).status.members}
    await running(leader).propose(b"two of three")
    await cluster.wait_until(lambda: len(data_of(fourth)) == 3)
    cluster.check_agreement()


async def test_a_leader_that_is_to_be_removed_hands_over_and_another_goes_on(
    cluster: RaftCluster,
) -> None:
    leader = await cluster.wait_for_leader()
    removal = ConfChange(ConfChangeType.ConfChangeRemoveNode, leader.id)
    with pytest.raises(NotLeader) as refused:
        await running(leader).change_membership(removal)
    new = cluster.nodes[refused.value.leader]
    await cluster.wait_until(lambda: cluster.leader() is new)
    await running(new).propose(b"first of its own")
    await running(new).change_membership(removal)
    await running(new).propose(b"without it")
    assert leader.id not in new.members.voters


async def test_the_last_voter_cannot_be_removed(disk: Path) -> None:
    async with raft_cluster(disk, voters=1) as cluster:
        leader = await cluster.wait_for_leader()
        with pytest.raises(InvalidRequest):
            await running(leader).change_membership(
                ConfChange(ConfChangeType.ConfChangeRemoveNode, leader.id)
            )


async def test_a_failed_sync_stops_the_node_and_tells_everybody_who_waits(
    cluster: RaftCluster,
) -> None:
    leader = await cluster.wait_for_leader()
    leader.disk.broken = True
    with pytest.raises(MainstemError) as refused:
        await running(leader).propose(b"x")
    assert refused.value.code is ErrorCode.STORAGE_FAILED
    assert leader.fatal is not None
    with pytest.raises(MainstemError):
        await running(leader).propose(b"y")
    driver, leader.driver = running(leader), None
    await asyncio.gather(*driver.abandon(), return_exceptions=True)
    new = await cluster.wait_for_leader()
    await running(new).propose(b"the others go on")


async def test_a_node_with_a_full_disk_gives_leadership_up_and_comes_back(
    cluster: RaftCluster,
) -> None:
    leader = await cluster.wait_for_leader()
    save = leader.storage.save_now
    full = True

    def refusing(*args: object) -> bytes | None:
        if full:
            raise Unavailable(ErrorCode.DISK_FULL, "no room")
        return save(*args)  # type: ignore[arg-type]

    leader.storage.save_now = refusing  # type: ignore[method-assign,assignment]
    waiting = asyncio.ensure_future(running(leader).propose(b"x"))
    await cluster.wait_until(lambda: cluster.leader() not in (None, leader))
    new = await cluster.wait_for_leader()
    await running(new).propose(b"y")
    full = False
    await cluster.wait_until(lambda: b"y" in data_of(leader))
    await asyncio.wait({waiting}, timeout=20)
    assert waiting.done()
    if waiting.exception() is None:
        assert b"x" in data_of(new)
    cluster.check_agreement()


async def test_a_slow_disk_costs_nobody_its_leadership(cluster: RaftCluster) -> None:
    """Heartbeats and their answers leave while a sync is under way."""

    leader = await cluster.wait_for_leader()
    await running(leader).propose(b"quick")
    term = running(leader).status.term
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    loop.job_delay_s = lambda: 2.5
    await running(leader).propose(b"slow")
    assert running(leader).status.term == term
    loop.job_delay_s = lambda: 0.001


async def test_an_acknowledgement_leaves_when_the_disk_has_answered(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    await running(leader).propose(b"first")
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    loop.job_delay_s = lambda: 0.2
    sent: list[tuple[float, RaftMessage]] = []
    carry = cluster.carry

    def watched(from_: NodeId, to: NodeId, data: bytes) -> None:
        sent.append((loop.time(), decode_message(data)))
        carry(from_, to, data)

    cluster.carry = watched  # type: ignore[method-assign]
    began_s = loop.time()
    index = await running(leader).propose(b"second")
    acknowledgements = [
        at_s
        for at_s, message in sent
        if message.type is MessageType.MsgAppResp and message.index == index
    ]
    first_s = min(acknowledgements)
    assert first_s - began_s >= 0.4  # the job, and the news of its end


async def test_bytes_that_are_no_message_are_refused(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    for data in (b"", b"\x00", b"nonsense", b"\x93\x01\x02"):
        with pytest.raises(MainstemError) as refused:
            running(leader).receive(data)
        assert refused.value.code is ErrorCode.CORRUPT


async def test_nothing_of_a_closed_node_is_left_behind(cluster: RaftCluster) -> None:
    leader = await cluster.wait_for_leader()
    waiting = asyncio.ensure_future(running(leader).read_barrier(50.0))
    cluster.isolate(leader)
    await asyncio.sleep(0.01)
    driver = running(leader)
    await cluster.stop(leader)
    with pytest.raises(MainstemError):
        await waiting
    with pytest.raises(MainstemError):
        await driver.propose(b"too late")
    shutil.rmtree(leader.folder)


async def test_a_lone_voter_leads_at_once(disk: Path) -> None:
    async with raft_cluster(disk, voters=1) as cluster:
        await cluster.wait_for_leader()
        assert asyncio.get_running_loop().time() < 0.2


async def test_a_snapshot_that_arrives_damaged_is_asked_for_again(disk: Path) -> None:
    settings = DriverSettings(snapshot_entries=50, keep_entries=5)

    async with raft_cluster(disk, settings=settings) as cluster:
        leader = await cluster.wait_for_leader()
        behind = others(cluster, leader)[0]
        cluster.isolate(behind)
        for number in range(100):
            await running(leader).propose(b"entry number %d" % number)
        carry = cluster.carry
        damaged = 0

        def damaging(from_: NodeId, to: NodeId, data: bytes) -> None:
            nonlocal damaged
            message = decode_message(data)
            if message.type is MessageType.MsgSnapChunk and damaged < 2:
                damaged += 1
                flipped = message.data[:-1] + bytes([message.data[-1] ^ 1])
                data = encode_message(msgspec.structs.replace(message, data=flipped))
            carry(from_, to, data)

        cluster.carry = damaging  # type: ignore[method-assign]
        cluster.heal()
        await cluster.wait_until(lambda: len(data_of(behind)) == 100, timeout_s=120)
        assert damaged == 2
        cluster.check_agreement()
