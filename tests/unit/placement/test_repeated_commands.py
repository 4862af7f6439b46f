"""A command that its sender repeats under the same id is decided once."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.placement.council import Council, driver_of, found, play, topic

from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.doors_driver import DriverSettings
from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.features import MAINSTEM_VERSION
from mainstem.model.ids import NodeId, TopicId
from mainstem.model.limits import COMMANDS_REMEMBERED_MAX
from mainstem.placement.catalogue import Catalogue
from mainstem.placement.commands_driver import CommandQueue, PendingCommand
from mainstem.placement.fact import Command
from mainstem.placement.group_service import GroupPlacementService
from mainstem.placement.records import (
    AddPartitions,
    AllocateProducerIds,
    CatalogueState,
    CommandDecided,
    CreateTopic,
    DeleteTopic,
    FeaturesSet,
    PartitionsAdded,
)

T1 = TopicId((1).to_bytes(16))
BLOCK = AllocateProducerIds(NodeId(1), 1, 10)


async def at_level_1(council: Council) -> GroupPlacementService:
    """A cluster some of whose nodes are of the release before; the leader's service."""
    service = await found(council)
    leader = await council.wait_for_leader()
    await driver_of(leader).propose(msgspec.json.encode(FeaturesSet(2, {MAINSTEM_VERSION: 1})))
    await council.wait_until(lambda: all(s.catalogue.level == 1 for s in council.services.values()))
    for facts in council.facts.values():
        facts.clear()
    return service


def asked(command: Command[Any], command_id: str) -> bytes:
    """The bytes with which a node asks the leader."""
    raw = msgspec.Raw(msgspec.msgpack.encode(command))
    return msgspec.msgpack.encode((type(command).__name__, raw, command_id, 5.0))


def reply(answer: bytes) -> Any:
    return msgspec.msgpack.decode(answer)[1]


class Lossy(Council):
    """Loses the leader's answer to the next questions, after it has acted."""

    lost = 0

    async def ask(self, asker: NodeId, to: NodeId, data: bytes, timeout_s: float) -> bytes:
        answer = await super().ask(asker, to, data, timeout_s)
        if self.lost > 0:
            self.lost -= 1
            raise Unavailable(ErrorCode.WRITER_UNAVAILABLE, "the connection to the node ended")
        return answer


def test_a_command_whose_answer_was_lost_is_decided_once_and_answered(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        assert isinstance(council, Lossy)
        service = await found(council)
        follower = council.services[(await council.follower()).id]
        council.lost = 2
        assert await follower.submit(BLOCK) == (0, 10)
        assert service.catalogue.next_producer_id == 10
        council.lost = 1
        created = await follower.submit(topic(1))
        assert created == follower.catalogue.topic("t1")
        council.lost = 1
        grown = await follower.submit(AddPartitions(T1, expected=3, total=6))
        assert len(grown.streams) == 6
        council.lost = 1
        await follower.submit(DeleteTopic(T1))
        assert not council.lost
        assert service.catalogue.topic("t1") is None

    play(tmp_path, story, kind=Lossy)


def test_without_the_level_an_unknown_outcome_is_not_tried_again(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        assert isinstance(council, Lossy)
        service = await at_level_1(council)
        follower = council.services[(await council.follower()).id]
        council.lost = 1
        with pytest.raises(Unavailable, match="the connection to the node ended"):
            await follower.submit(BLOCK)
        assert service.catalogue.next_producer_id == 10
        await follower.submit(topic(1))
        await follower.submit(AddPartitions(T1, expected=3, total=6))
        kinds = {type(fact) for fact in council.facts[(await council.wait_for_leader()).id]}
        assert CommandDecided not in kinds
        [grown] = [f for f in council.facts[NodeId(1)] if isinstance(f, PartitionsAdded)]
        assert b"expected" not in msgspec.json.encode(grown)

    play(tmp_path, story, kind=Lossy)


def test_a_repeat_reaches_the_next_leader_and_is_answered_as_the_first_was(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        old = await council.wait_for_leader()
        first = reply(await service.decide_for(asked(BLOCK, "x")))
        await council.wait_until(
            lambda: all("x" in each.catalogue.decided for each in council.services.values())
        )
        council.kill(old, power_loss=True)
        await council.wait_until(lambda: council.leader() is not None)
        new = await council.wait_for_leader()
        again = reply(await council.services[new.id].decide_for(asked(BLOCK, "x")))
        assert first == again == [0, 10]
        assert reply(await council.services[new.id].decide_for(asked(BLOCK, "y"))) == [10, 20]

    play(tmp_path, story)


def test_a_repeat_that_meets_the_first_in_one_append_is_decided_once(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        tries = [service.decide_for(asked(BLOCK, "x")) for _ in range(5)]
        replies = [reply(answer) for answer in await asyncio.gather(*tries)]
        assert replies == [[0, 10]] * 5
        assert service.catalogue.next_producer_id == 10

    play(tmp_path, story)


def test_a_leader_that_hangs_is_left_for_the_next_one_in_time(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        follower = council.services[(await council.follower()).id]
        leader = await council.wait_for_leader()
        hung = asyncio.Event()

        async def hang(data: bytes | memoryview) -> bytes:
            await hung.wait()
            return b""

        council.services[leader.id].decide_for = hang  # type: ignore[method-assign]
        waiting = asyncio.ensure_future(follower.submit(BLOCK))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        council.isolate(leader)
        assert await waiting == (0, 10)

    play(tmp_path, story)


def test_a_command_that_was_taken_on_in_another_term_is_not_decided(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        queue = CommandQueue()
        early, late = PendingCommand(BLOCK, "x", 3), PendingCommand(BLOCK, "y", 5)
        for pending in (early, late):
            queue.add(pending, 10.0)
        assert queue.take(10, 5) == [late]
        with pytest.raises(NotLeader, match="nothing was recorded"):
            await early.answer
        await council.wait_for_leader()

    play(tmp_path, story)


def test_ids_of_decisions_are_part_of_snapshots(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        behind = await council.follower()
        council.kill(behind, power_loss=False)
        first = reply(await service.decide_for(asked(BLOCK, "x")))
        for number in range(1, 30):
            await service.submit(topic(number))
        council.start(behind)
        await council.wait_until(lambda: "x" in council.services[behind.id].catalogue.decided)
        heard = [f.id for f in council.facts[behind.id] if isinstance(f, CommandDecided)]
        assert "x" not in heard, "it came with a snapshot"
        driver_of(await council.wait_for_leader()).transfer_leadership(behind.id)
        await council.wait_until(lambda: council.leader() is behind)
        again = reply(await council.services[behind.id].decide_for(asked(BLOCK, "x")))
        assert again == first

    play(tmp_path, story, settings=DriverSettings(snapshot_entries=10, keep_entries=2))


def test_a_repeat_whose_topic_is_gone_is_told_so(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        await service.decide_for(asked(topic(1), "x"))
        await service.submit(DeleteTopic(T1))
        with pytest.raises(InvalidRequest, match="no topic with that id"):
            await service.decide_for(asked(topic(1), "x"))
        with pytest.raises(InvalidRequest, match="belongs to a CreateTopic"):
            await service.decide_for(asked(BLOCK, "x"))
        assert service.catalogue.topic("t1") is None

    play(tmp_path, story)


def test_a_question_of_the_release_before_is_understood(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        raw = msgspec.Raw(msgspec.msgpack.encode(BLOCK))
        old = msgspec.msgpack.encode(("AllocateProducerIds", raw))
        known = list(service.catalogue.decided)
        assert reply(await service.decide_for(old)) == [0, 10]
        assert list(service.catalogue.decided) == known

    play(tmp_path, story)


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
