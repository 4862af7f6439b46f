"""A leader that does not know the outcome of its own proposal decides nothing on top of it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.placement.council import Council, driver_of, found, names, play, topic

from mainstem.cluster.raft.answers_driver import OutcomeUnknown
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import Epoch, Offset, ProducerId, RangeIndex, TopicId
from mainstem.placement.fact import Command
from mainstem.placement.group_service import GroupPlacementService
from mainstem.placement.records import (
    AddPartitions,
    DeleteTopic,
    ProducerIdsAllocated,
    RangeEnd,
    SealAndCreate,
    TopicDeleted,
)

T1 = TopicId((1).to_bytes(16))


async def outcomes(
    service: GroupPlacementService, commands: Sequence[Command[Any]]
) -> list[object]:
    """What each command is answered with, one after the other."""
    seen: list[object] = []
    for command in commands:
        try:
            seen.append(await service.submit(command))
        except MainstemError as refusal:
            seen.append(refusal)
    return seen


async def healed(council: Council) -> None:
    """Every disk works again and every node has applied everything."""
    council.full.clear()
    council.stalled.clear()
    await council.wait_until(
        lambda: (
            len({driver_of(n).state.log.applied for n in council.nodes.values()}) == 1
            and all(
                driver_of(n).state.log.applied == driver_of(n).state.log.last_index
                for n in council.nodes.values()
            )
        )
    )


def test_a_topic_that_is_deleted_again_while_the_first_outcome_is_unknown_is_deleted_once(
    tmp_path: Path,
) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        leader = await council.wait_for_leader()
        await service.submit(topic(1))
        council.full |= council.others(leader)
        first, second = await outcomes(service, [DeleteTopic(T1), DeleteTopic(T1)])
        assert isinstance(first, OutcomeUnknown)
        assert isinstance(second, Unavailable)
        assert second.code is ErrorCode.TIMED_OUT
        assert "nothing was recorded" in second.cause
        assert driver_of(leader).state.is_leader, "it still leads and must not have decided"
        await healed(council)
        assert all(not found for found in names(council).values())
        for facts in council.facts.values():
            assert [type(fact) for fact in facts].count(TopicDeleted) == 1
        assert isinstance((await outcomes(service, [DeleteTopic(T1)]))[0], InvalidRequest)

    play(tmp_path, story)


def test_partitions_that_are_added_again_while_the_first_outcome_is_unknown_are_added_once(
    tmp_path: Path,
) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        leader = await council.wait_for_leader()
        await service.submit(topic(1))
        council.full |= council.others(leader)
        grow = AddPartitions(T1, expected=3, total=6)
        assert isinstance((await outcomes(service, [grow, grow]))[0], OutcomeUnknown)
        await healed(council)
        for each in council.services.values():
            assert each.catalogue.partition_count == 6

    play(tmp_path, story)


def test_a_seal_that_is_asked_for_again_while_its_outcome_is_unknown_closes_one_range(
    tmp_path: Path,
) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        leader = await council.wait_for_leader()
        stream = (await service.submit(topic(1))).streams[0].id
        council.full |= council.others(leader)
        end = RangeEnd(stream, Epoch(0), RangeIndex(0), Offset(100))
        first, second = await outcomes(service, [SealAndCreate("r", end)] * 2)
        assert isinstance(first, Unavailable)
        assert isinstance(second, Unavailable)
        await healed(council)
        after = await service.submit(SealAndCreate("r", end))
        assert (after.last.index, after.last.start) == (1, 100)
        for each in council.services.values():
            assert each.catalogue.stream(stream) == after

    play(tmp_path, story)


def test_commands_that_wait_for_an_unknown_outcome_are_decided_once_it_is_known(
    tmp_path: Path,
) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        leader = await council.wait_for_leader()
        await service.submit(topic(1))
        council.stalled |= council.others(leader)
        assert isinstance((await outcomes(service, [DeleteTopic(T1)]))[0], OutcomeUnknown)
        again = asyncio.ensure_future(service.submit(DeleteTopic(T1)))
        other = asyncio.ensure_future(service.submit(topic(2)))
        await asyncio.sleep(1.0)
        assert not again.done()
        assert not other.done()
        await healed(council)
        with pytest.raises(InvalidRequest, match="no topic with that id"):
            await again
        assert (await other).name == "t2"

    play(tmp_path, story)


def test_a_caller_that_gives_up_while_its_command_waits_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        leader = await council.wait_for_leader()
        council.full |= council.others(leader)
        assert isinstance((await outcomes(service, [topic(1)]))[0], OutcomeUnknown)
        given_up = asyncio.ensure_future(service.submit(topic(2)))
        await asyncio.sleep(1.0)
        given_up.cancel()
        await healed(council)
        await service.submit(topic(3))
        assert set(map(tuple, names(council).values())) >= {("t1", "t3")}

    play(tmp_path, story)


def test_a_leader_that_is_deposed_with_a_pending_entry_does_not_decide_on_it(
    tmp_path: Path,
) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        old = await council.wait_for_leader()
        await service.submit(topic(1))
        council.isolate(old)
        lost = asyncio.ensure_future(service.submit(DeleteTopic(T1)))
        rest = [node for node in council.nodes.values() if node is not old]
        await council.wait_until(lambda: council.leader() in rest)
        new = council.leader()
        assert new is not None
        await council.services[new.id].submit(AddPartitions(T1, expected=3, total=4))
        council.heal()
        await asyncio.wait({lost})
        await healed(council)
        deleted = [TopicDeleted in map(type, facts) for facts in council.facts.values()]
        assert len(set(deleted)) == 1
        for each in council.services.values():
            assert each.catalogue.state() == council.services[new.id].catalogue.state()

    play(tmp_path, story)


def test_a_proposal_that_a_stalled_disk_never_took_was_not_recorded(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        driver = driver_of(await council.wait_for_leader())
        council.stalled.add(driver.state.id)
        facts = [msgspec.json.encode(ProducerIdsAllocated(ProducerId(n))) for n in (10, 20)]
        first = asyncio.ensure_future(driver.propose(facts[0]))
        await asyncio.sleep(0.1)  # its write has begun
        before = driver.state.log.last_index
        second = asyncio.ensure_future(driver.propose(facts[1]))
        await asyncio.wait({first, second})
        assert isinstance(first.exception(), OutcomeUnknown)
        refusal = second.exception()
        assert isinstance(refusal, Unavailable)
        assert not isinstance(refusal, OutcomeUnknown)
        assert "nothing was recorded" in refusal.cause
        assert driver.state.log.last_index == before
        await healed(council)
        for service in council.services.values():
            assert service.catalogue.next_producer_id == 10

    play(tmp_path, story)


def test_a_leader_that_stops_while_an_outcome_is_unknown_refuses_what_waits_at_once(
    tmp_path: Path,
) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        leader = await council.wait_for_leader()
        council.full |= council.others(leader)
        assert isinstance((await outcomes(service, [topic(1)]))[0], OutcomeUnknown)
        waiting = asyncio.ensure_future(service.submit(topic(2)))
        await asyncio.sleep(0.5)
        begun = asyncio.get_running_loop().time()
        await service.close()
        assert asyncio.get_running_loop().time() - begun < 1.0
        with pytest.raises(Unavailable):
            await waiting
        await healed(council)
        assert set(map(tuple, names(council).values())) == {("t1",)}

    play(tmp_path, story)


def test_a_cluster_starts_from_a_log_that_holds_a_fact_twice(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        service = await found(council)
        leader = await council.wait_for_leader()
        await service.submit(topic(1))
        twice = msgspec.json.encode(TopicDeleted(T1, "t1"))
        for _ in range(2):
            await driver_of(leader).propose(twice)
        assert service.catalogue.ignored == {"TopicDeleted": 1}
        assert [type(f) for f in council.facts[leader.id]].count(TopicDeleted) == 1
        await healed(council)
        for node in council.nodes.values():
            council.kill(node, power_loss=False)
        for node in council.nodes.values():
            council.start(node)
        await council.wait_for_leader()
        await healed(council)
        for each in council.services.values():
            assert each.catalogue.ignored == {"TopicDeleted": 1}
            assert not list(each.catalogue.topics())

    play(tmp_path, story)
