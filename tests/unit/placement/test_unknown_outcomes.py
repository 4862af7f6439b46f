"""A leader that does not know the outcome of its own proposal decides nothing on top of it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.kit.catalogue import CatalogueGroup, driver_of, found, names, topic
from tests.kit.loop import virtual_time

from mainstem.cluster.raft.drivers.pending_driver import OutcomeUnknown
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import Epoch, Offset, ProducerId, RangeIndex, TopicId
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.changes.commands import (
    AddPartitions,
    DeleteTopic,
    ProducerIdsAllocated,
    RangeEnd,
    SealAndCreate,
    TopicDeleted,
)
from mainstem.placement.raft_service import RaftPlacementService

pytestmark = virtual_time

T1 = TopicId((1).to_bytes(16))


async def outcomes(service: RaftPlacementService, commands: Sequence[Command[Any]]) -> list[object]:
    """What each command is answered with, one after the other."""
    seen: list[object] = []
    for command in commands:
        try:
            seen.append(await service.submit(command))
        except MainstemError as refusal:
            seen.append(refusal)
    return seen


async def healed(catalogue_group: CatalogueGroup) -> None:
    """Every disk works again and every node has applied everything."""
    catalogue_group.full.clear()
    catalogue_group.stalled.clear()
    await catalogue_group.wait_until(
        lambda: (
            len({driver_of(n).state.log.applied for n in catalogue_group.nodes.values()}) == 1
            and all(
                driver_of(n).state.log.applied == driver_of(n).state.log.last_index
                for n in catalogue_group.nodes.values()
            )
        )
    )


async def test_a_topic_that_is_deleted_again_while_the_first_outcome_is_unknown_is_deleted_once(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    leader = await catalogue_group.wait_for_leader()
    await service.submit(topic(1))
    catalogue_group.full |= catalogue_group.others(leader)
    first, second = await outcomes(service, [DeleteTopic(T1), DeleteTopic(T1)])
    assert isinstance(first, OutcomeUnknown)
    assert isinstance(second, Unavailable)
    assert second.code is ErrorCode.TIMED_OUT
    assert "nothing was recorded" in second.cause
    assert driver_of(leader).state.is_leader, "it still leads and must not have decided"
    await healed(catalogue_group)
    assert all(not found for found in names(catalogue_group).values())
    for facts in catalogue_group.facts.values():
        assert [type(fact) for fact in facts].count(TopicDeleted) == 1
    assert isinstance((await outcomes(service, [DeleteTopic(T1)]))[0], InvalidRequest)


async def test_partitions_that_are_added_again_while_the_first_outcome_is_unknown_are_added_once(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    leader = await catalogue_group.wait_for_leader()
    await service.submit(topic(1))
    catalogue_group.full |= catalogue_group.others(leader)
    grow = AddPartitions(T1, expected=3, total=6)
    assert isinstance((await outcomes(service, [grow, grow]))[0], OutcomeUnknown)
    await healed(catalogue_group)
    for each in catalogue_group.services.values():
        assert each.catalogue.partition_count == 6


async def test_a_seal_that_is_asked_for_again_while_its_outcome_is_unknown_closes_one_range(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    leader = await catalogue_group.wait_for_leader()
    stream = (await service.submit(topic(1))).streams[0].id
    catalogue_group.full |= catalogue_group.others(leader)
    end = RangeEnd(stream, Epoch(0), RangeIndex(0), Offset(100))
    first, second = await outcomes(service, [SealAndCreate("r", end)] * 2)
    assert isinstance(first, Unavailable)
    assert isinstance(second, Unavailable)
    await healed(catalogue_group)
    after = await service.submit(SealAndCreate("r", end))
    assert (after.last.index, after.last.start) == (1, 100)
    for each in catalogue_group.services.values():
        assert each.catalogue.stream(stream) == after


async def test_commands_that_wait_for_an_unknown_outcome_are_decided_once_it_is_known(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    leader = await catalogue_group.wait_for_leader()
    await service.submit(topic(1))
    catalogue_group.stalled |= catalogue_group.others(leader)
    assert isinstance((await outcomes(service, [DeleteTopic(T1)]))[0], OutcomeUnknown)
    again = asyncio.ensure_future(service.submit(DeleteTopic(T1)))
    other = asyncio.ensure_future(service.submit(topic(2)))
    await asyncio.sleep(1.0)
    assert not again.done()
    assert not other.done()
    await healed(catalogue_group)
    with pytest.raises(InvalidRequest, match="no topic with that id"):
        await again
    assert (await other).name == "t2"


async def test_a_caller_that_gives_up_while_its_command_waits_leaves_nothing_behind(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    leader = await catalogue_group.wait_for_leader()
    catalogue_group.full |= catalogue_group.others(leader)
    assert isinstance((await outcomes(service, [topic(1)]))[0], OutcomeUnknown)
    given_up = asyncio.ensure_future(service.submit(topic(2)))
    await asyncio.sleep(1.0)
    given_up.cancel()
    await healed(catalogue_group)
    await service.submit(topic(3))
    assert set(map(tuple, names(catalogue_group).values())) >= {("t1", "t3")}


async def test_a_leader_that_is_deposed_with_a_pending_entry_does_not_decide_on_it(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    old = await catalogue_group.wait_for_leader()
    await service.submit(topic(1))
    catalogue_group.isolate(old)
    lost = asyncio.ensure_future(service.submit(DeleteTopic(T1)))
    rest = [node for node in catalogue_group.nodes.values() if node is not old]
    await catalogue_group.wait_until(lambda: catalogue_group.leader() in rest)
    new = catalogue_group.leader()
    assert new is not None
    await catalogue_group.services[new.id].submit(AddPartitions(T1, expected=3, total=4))
    catalogue_group.heal()
    await asyncio.wait({lost})
    await healed(catalogue_group)
    deleted = [TopicDeleted in map(type, facts) for facts in catalogue_group.facts.values()]
    assert len(set(deleted)) == 1
    for each in catalogue_group.services.values():
        assert each.catalogue.state() == catalogue_group.services[new.id].catalogue.state()


@pytest.mark.parametrize("is_healed", [False, True])
async def test_a_leader_that_was_replaced_without_noticing_refuses_nothing(
    catalogue_group: CatalogueGroup, is_healed: bool
) -> None:
    service = await found(catalogue_group)
    old = await catalogue_group.wait_for_leader()
    await service.submit(topic(1))
    catalogue_group.isolate(old)
    rest = [node for node in catalogue_group.nodes.values() if node is not old]
    await catalogue_group.wait_until(lambda: catalogue_group.leader() in rest)
    new = catalogue_group.leader()
    assert new is not None
    await catalogue_group.services[new.id].submit(DeleteTopic(T1))
    if is_healed:
        catalogue_group.heal()
    assert driver_of(old).state.is_leader, "it does not know yet"
    raw = msgspec.Raw(msgspec.msgpack.encode(topic(1)))
    question = msgspec.msgpack.encode(("CreateTopic", raw, "x", 5.0))
    with pytest.raises(Unavailable) as refusal:
        await service.decide_for(question)
    assert "nothing was recorded" in refusal.value.cause
    catalogue_group.heal()
    await healed(catalogue_group)
    created = await service.submit(replace(topic(1), id=TopicId((9).to_bytes(16))))
    assert created.name == "t1"


async def test_a_proposal_that_a_stalled_disk_never_took_was_not_recorded(
    catalogue_group: CatalogueGroup,
) -> None:
    await found(catalogue_group)
    driver = driver_of(await catalogue_group.wait_for_leader())
    catalogue_group.stalled.add(driver.state.id)
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
    await healed(catalogue_group)
    for service in catalogue_group.services.values():
        assert service.catalogue.next_producer_id == 10


async def test_a_leader_that_stops_while_an_outcome_is_unknown_refuses_what_waits_at_once(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    leader = await catalogue_group.wait_for_leader()
    catalogue_group.full |= catalogue_group.others(leader)
    assert isinstance((await outcomes(service, [topic(1)]))[0], OutcomeUnknown)
    waiting = asyncio.ensure_future(service.submit(topic(2)))
    await asyncio.sleep(0.5)
    begun = asyncio.get_running_loop().time()
    await service.close()
    assert asyncio.get_running_loop().time() - begun < 1.0
    with pytest.raises(Unavailable):
        await waiting
    await healed(catalogue_group)
    assert set(map(tuple, names(catalogue_group).values())) == {("t1",)}


async def test_a_cluster_starts_from_a_log_that_holds_a_fact_twice(
    catalogue_group: CatalogueGroup,
) -> None:
    service = await found(catalogue_group)
    leader = await catalogue_group.wait_for_leader()
    await service.submit(topic(1))
    twice = msgspec.json.encode(TopicDeleted(T1, "t1"))
    for _ in range(2):
        await driver_of(leader).propose(twice)
    assert service.catalogue.ignored == {"TopicDeleted": 1}
    assert [type(f) for f in catalogue_group.facts[leader.id]].count(TopicDeleted) == 1
    await healed(catalogue_group)
    for node in catalogue_group.nodes.values():
        catalogue_group.kill(node, power_loss=False)
    for node in catalogue_group.nodes.values():
        catalogue_group.start(node)
    await catalogue_group.wait_for_leader()
    await healed(catalogue_group)
    for each in catalogue_group.services.values():
        assert each.catalogue.ignored == {"TopicDeleted": 1}
        assert not list(each.catalogue.topics())
