"""A command that its sender repeats under the same id is decided once."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kit.catalogue import CatalogueGroup, driver_of, found, new_catalogue_group, topic
from tests.kit.loop import virtual_time

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.drivers.interfaces_driver import DriverSettings
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.features import MAINSTEM_VERSION
from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, StreamId, TopicId
from mainstem.model.limits import COMMANDS_REMEMBERED_MAX
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import (
    AddPartitions,
    AllocateProducerIds,
    CatalogueState,
    CommandDecided,
    CreateTopic,
    DeleteTopic,
    FeaturesSet,
    PartitionsAdded,
    RestartStreams,
    TopicCreated,
    TopicDeleted,
    TrimStream,
)
from mainstem.placement.changes.deduplication import deduplicated_reply
from mainstem.placement.command_queue_driver import CommandQueue, PendingCommand
from mainstem.placement.raft_service import RaftPlacementService
from mainstem.placement.state.catalogue import Catalogue

pytestmark = virtual_time

T1 = TopicId((1).to_bytes(16))
BLOCK = AllocateProducerIds(NodeId(1), 1, 10)


async def at_level_1(catalogue_group: CatalogueGroup) -> RaftPlacementService:
    """A cluster some of whose nodes are of the release before; the leader's service."""
    service = await found(catalogue_group)
    leader = await catalogue_group.wait_for_leader()
    await driver_of(leader).propose(msgspec.json.encode(FeaturesSet(2, {MAINSTEM_VERSION: 1})))
    await catalogue_group.wait_until(
        lambda: all(s.catalogue.level == 1 for s in catalogue_group.services.values())
    )
    for facts in catalogue_group.facts.values():
        facts.clear()
    return service


def asked(command: Command[Any], command_id: str) -> bytes:
    """The bytes with which a node asks the leader."""
    raw = msgspec.Raw(msgspec.msgpack.encode(command))
    return msgspec.msgpack.encode((type(command).__name__, raw, command_id, 5.0))


def reply(answer: bytes) -> Any:
    return msgspec.msgpack.decode(answer)[1]


class Lossy(CatalogueGroup):
    """Loses the leader's answer to the next questions, after it has acted."""

    lost = 0

    async def ask(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        answer = await super().ask(asker, to, data, timeout_s)
        if self.lost > 0:
            self.lost -= 1
            raise Unavailable(ErrorCode.WRITER_UNAVAILABLE, "the connection to the node ended")
        return answer


async def test_a_command_whose_answer_was_lost_is_decided_once_and_answered(tmp_path: Path) -> None:
    async with new_catalogue_group(tmp_path, kind=Lossy) as catalogue_group:
        assert isinstance(catalogue_group, Lossy)
        service = await found(catalogue_group)
        follower = catalogue_group.services[(await catalogue_group.follower()).id]
        catalogue_group.lost = 2
        assert await follower.submit(BLOCK) == (0, 10)
        assert service.catalogue.next_producer_id == 10
        catalogue_group.lost = 1
        created = await follower.submit(topic(1))
        assert created == follower.catalogue.topic("t1")
        catalogue_group.lost = 1
        grown = await follower.submit(AddPartitions(T1, expected=3, total=6))
        assert len(grown.streams) == 6
        catalogue_group.lost = 1
        await follower.submit(DeleteTopic(T1))
        assert not catalogue_group.lost
        assert service.catalogue.topic("t1") is None


async def test_without_the_level_an_unknown_outcome_is_not_tried_again(tmp_path: Path) -> None:
    async with new_catalogue_group(tmp_path, kind=Lossy) as catalogue_group:
        assert isinstance(catalogue_group, Lossy)
        service = await at_level_1(catalogue_group)
        follower = catalogue_group.services[(await catalogue_group.follower()).id]
        catalogue_group.lost = 1
        with pytest.raises(Unavailable, match="the connection to the node ended"):
            await follower.submit(BLOCK)
        assert service.catalogue.next_producer_id == 10
        await follower.submit(topic(1))
        await follower.submit(AddPartitions(T1, expected=3, total=6))
        kinds = {
            type(fact)
            for fact in catalogue_group.facts[(await catalogue_group.wait_for_leader()).id]
        }
        assert CommandDecided not in kinds
        [grown] = [f for f in catalogue_group.facts[NodeId(1)] if isinstance(f, PartitionsAdded)]
        assert b"expected" not in msgspec.json.encode(grown)


class Raising(Lossy):
    """Raises the level while the answer to the next question is lost."""

    async def ask(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        try:
            return await super().ask(asker, to, data, timeout_s)
        except Unavailable:
            raised = FeaturesSet(3, {MAINSTEM_VERSION: 2})
            await driver_of(self.nodes[to]).propose(msgspec.json.encode(raised))
            await self.wait_until(lambda: self.services[asker].catalogue.level == 2)
            raise


async def test_a_command_that_was_decided_below_the_level_is_not_tried_again_above_it(
    tmp_path: Path,
) -> None:
    async with new_catalogue_group(tmp_path, kind=Raising) as catalogue_group:
        assert isinstance(catalogue_group, Raising)
        service = await at_level_1(catalogue_group)
        follower = catalogue_group.services[(await catalogue_group.follower()).id]
        catalogue_group.lost = 1
        with pytest.raises(Unavailable, match="the connection to the node ended"):
            await follower.submit(BLOCK)
        assert follower.catalogue.level == 2
        assert service.catalogue.next_producer_id == 10


async def test_a_repeat_reaches_the_next_leader_and_is_answered_as_the_first_was(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    old = await catalogue_group.wait_for_leader()
    first = reply(await service.decide_for(asked(BLOCK, "x")))
    await catalogue_group.wait_until(
        lambda: all("x" in each.catalogue.decided for each in catalogue_group.services.values())
    )
    catalogue_group.kill(old, power_loss=True)
    await catalogue_group.wait_until(lambda: catalogue_group.leader() is not None)
    new = await catalogue_group.wait_for_leader()
    again = reply(await catalogue_group.services[new.id].decide_for(asked(BLOCK, "x")))
    assert first == again == [0, 10]
    assert reply(await catalogue_group.services[new.id].decide_for(asked(BLOCK, "y"))) == [
        10,
        20,
    ]


async def test_a_repeat_that_meets_the_first_in_one_append_is_decided_once(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    tries = [service.decide_for(asked(BLOCK, "x")) for _ in range(5)]
    replies = [reply(answer) for answer in await asyncio.gather(*tries)]
    assert replies == [[0, 10]] * 5
    assert service.catalogue.next_producer_id == 10


async def test_a_leader_that_hangs_is_left_for_the_next_one_in_time(
    catalogue_group: CatalogueGroup,
) -> None:
    await found(catalogue_group)
    follower = catalogue_group.services[(await catalogue_group.follower()).id]
    leader = await catalogue_group.wait_for_leader()
    hung = asyncio.Event()

    async def hang(data: bytes | memoryview) -> bytes:
        await hung.wait()
        return b""

    catalogue_group.services[leader.id].decide_for = hang  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(follower.submit(BLOCK))
    await asyncio.sleep(1.0)
    assert not waiting.done()
    catalogue_group.isolate(leader)
    assert await waiting == (0, 10)


async def test_a_command_that_was_taken_on_in_another_term_is_not_decided(
    catalogue_group: CatalogueGroup,
) -> None:
    queue = CommandQueue()
    early, late = PendingCommand(BLOCK, "x", 3), PendingCommand(BLOCK, "y", 5)
    for pending in (early, late):
        queue.add(pending, 10.0)
    assert queue.take(10, 5) == [late]
    with pytest.raises(NotLeader, match="nothing was recorded"):
        await early.answer
    await catalogue_group.wait_for_leader()


async def test_ids_of_decisions_are_part_of_snapshots(tmp_path: Path) -> None:
    async with new_catalogue_group(
        tmp_path, settings=DriverSettings(snapshot_entries=10, keep_entries=2)
    ) as catalogue_group:
        service = await found(catalogue_group)
        behind = await catalogue_group.follower()
        catalogue_group.kill(behind, power_loss=False)
        first = reply(await service.decide_for(asked(BLOCK, "x")))
        for number in range(1, 30):
            await service.submit(topic(number))
        catalogue_group.start(behind)
        await catalogue_group.wait_until(
            lambda: "x" in catalogue_group.services[behind.id].catalogue.decided
        )
        heard = [f.id for f in catalogue_group.facts[behind.id] if isinstance(f, CommandDecided)]
        assert "x" not in heard, "it came with a snapshot"
        driver_of(await catalogue_group.wait_for_leader()).transfer_leadership(behind.id)
        await catalogue_group.wait_until(lambda: catalogue_group.leader() is behind)
        again = reply(await catalogue_group.services[behind.id].decide_for(asked(BLOCK, "x")))
        assert again == first


async def test_a_repeat_whose_topic_was_deleted_is_answered_as_the_first_was(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    grow = AddPartitions(T1, expected=3, total=4)
    created = reply(await service.decide_for(asked(topic(1), "create")))
    grown = reply(await service.decide_for(asked(grow, "grow")))
    await service.submit(DeleteTopic(T1))
    again = reply(await service.decide_for(asked(topic(1), "create")))
    assert (again["id"], again["name"]) == (created["id"], "t1")
    assert reply(await service.decide_for(asked(grow, "grow"))) == grown
    with pytest.raises(InvalidRequest, match="belongs to a CreateTopic"):
        await service.decide_for(asked(BLOCK, "create"))
    assert service.catalogue.topic("t1") is None
    await catalogue_group.wait_until(lambda: len(states(catalogue_group)) == 1)


def states(catalogue_group: CatalogueGroup) -> set[bytes]:
    """The catalogues of all nodes."""
    return {each.snapshot()() for each in catalogue_group.services.values()}


async def test_a_topic_that_is_deleted_while_the_sender_tries_again_was_created(
    tmp_path: Path,
) -> None:
    async with new_catalogue_group(tmp_path, kind=Lossy) as catalogue_group:
        assert isinstance(catalogue_group, Lossy)
        service = await found(catalogue_group)
        follower = catalogue_group.services[(await catalogue_group.follower()).id]
        catalogue_group.lost = 1
        creating = asyncio.ensure_future(follower.submit(topic(1)))
        await catalogue_group.wait_until(lambda: service.catalogue.topic("t1") is not None)
        await service.submit(DeleteTopic(T1))
        created = await creating
        assert (created.id, created.name, len(created.streams)) == (T1, "t1", 3)
        assert service.catalogue.topic("t1") is None


def remembering(*streams: StreamId, partitions: int = 1) -> Catalogue:
    """A catalogue with two topics, and a decision ``x`` that was answered with the first one."""
    catalogue = Catalogue()
    for number in (1, 2):
        nodes = ((NodeId(1),),) * partitions
        assert catalogue.replay(
            TopicCreated(TopicId(number.to_bytes(16)), f"t{number}", nodes, {}, False, 0)
        )
    kind = RestartStreams if streams else CreateTopic
    about = None if streams else T1
    assert catalogue.replay(CommandDecided("x", kind.__name__, topic=about, streams=streams))
    return catalogue


def test_streams_of_a_deleted_topic_are_answered_as_they_were_last() -> None:
    one, other = (StreamId(TopicId(n.to_bytes(16)), PartitionIndex(0)) for n in (1, 2))
    catalogue = remembering(one, other)
    before = tuple(catalogue.need_stream(stream) for stream in (one, other))
    assert catalogue.replay(TopicDeleted(T1, "t1"))
    restarted = RestartStreams(NodeId(1), 1, ())
    assert deduplicated_reply(catalogue, restarted, catalogue.decided["x"]) == before
    trimmed = CommandDecided("y", TrimStream.__name__, streams=(other,))
    assert catalogue.replay(trimmed)
    assert catalogue.replay(TopicDeleted(other.topic, "t2"))
    trim = TrimStream(other, Epoch(0), Offset(1))
    assert deduplicated_reply(catalogue, trim, catalogue.decided["y"]) == before[1]


def test_a_deleted_topic_that_is_too_large_to_be_kept_is_not_answered_with_a_refusal() -> None:
    catalogue = remembering(partitions=500)
    assert catalogue.replay(TopicDeleted(T1, "t1"))
    assert catalogue.decided["x"] == CommandDecided("x", CreateTopic.__name__, dropped=True)
    with pytest.raises(Unavailable, match="was decided before"):
        deduplicated_reply(catalogue, topic(1), catalogue.decided["x"])


async def test_a_question_of_the_release_before_is_understood(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    raw = msgspec.Raw(msgspec.msgpack.encode(BLOCK))
    old = msgspec.msgpack.encode(("AllocateProducerIds", raw))
    known = list(service.catalogue.decided)
    assert reply(await service.decide_for(old)) == [0, 10]
    assert list(service.catalogue.decided) == known


def test_the_release_before_understands_a_question_of_this_one() -> None:
    class Asked(msgspec.Struct, frozen=True, array_like=True):
        kind: str
        command: msgspec.Raw

    found = msgspec.msgpack.decode(asked(BLOCK, "x"), type=Asked)
    assert msgspec.msgpack.decode(found.command, type=AllocateProducerIds) == BLOCK


def test_only_the_last_decisions_are_remembered() -> None:
    catalogue = Catalogue()
    for number in range(COMMANDS_REMEMBERED_MAX + 3):
        assert catalogue.replay(CommandDecided(str(number), CreateTopic.__name__))
    assert len(catalogue.decided) == COMMANDS_REMEMBERED_MAX
    assert "2" not in catalogue.decided
    assert "3" in catalogue.decided
    data = msgspec.json.encode(catalogue.state())
    kept = Catalogue(msgspec.json.decode(data, type=CatalogueState))
    assert list(kept.decided) == list(catalogue.decided)
