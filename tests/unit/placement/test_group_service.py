"""The catalogue kept by three nodes: real Raft drivers and files under virtual time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.kit.catalogue import CatalogueGroup, driver_of, found, names, new_catalogue_group, topic
from tests.kit.loop import virtual_time

from mainstem.cluster.peers.error_codec import Unreachable
from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.drivers.interfaces_driver import DriverSettings
from mainstem.cluster.raft.drivers.pending_driver import OutcomeUnknown
from mainstem.cluster.raft.messages import SoftState, StateType
from mainstem.model.errors import Corrupt, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NodeId
from mainstem.placement.changes.commands import AllocateProducerIds, TopicCreated
from mainstem.placement.changes.security_commands import SetCredentials
from mainstem.security.authentication.passwords import Credentials

pytestmark = virtual_time


async def test_what_the_leader_decides_everybody_replays(catalogue_group: CatalogueGroup) -> None:
    leader = await found(catalogue_group)
    created = await leader.submit(topic(1))
    assert leader.catalogue.topic("t1") == created
    await catalogue_group.wait_until(
        lambda: set(map(tuple, names(catalogue_group).values())) == {("t1",)}
    )
    for facts in catalogue_group.facts.values():
        assert [type(fact).__name__ for fact in facts] == [
            "ClusterFormed",
            "FeaturesSet",
            "NodeRegistered",
            "CommandDecided",
            "TopicCreated",
            "CommandDecided",
        ]


async def test_a_follower_asks_the_leader_and_sees_the_outcome_itself(
    catalogue_group: CatalogueGroup,
) -> None:
    await found(catalogue_group)
    follower = catalogue_group.services[(await catalogue_group.follower()).id]
    created = await follower.submit(topic(1))
    assert follower.catalogue.topic("t1") == created
    with pytest.raises(InvalidRequest, match="already exists"):
        await follower.submit(topic(1))
    start, until = await follower.submit(AllocateProducerIds(NodeId(1), 1, 10))
    assert until - start == 10


async def test_commands_of_many_callers_on_many_nodes_are_each_decided_once(
    catalogue_group: CatalogueGroup,
) -> None:
    await found(catalogue_group)
    await catalogue_group.follower()
    services = list(catalogue_group.services.values())
    commands = [services[n % 3].submit(AllocateProducerIds(NodeId(1), 1, 5)) for n in range(60)]
    blocks = await asyncio.gather(*commands)
    taken = sorted(start for start, _ in blocks)
    assert taken == [taken[0] + 5 * n for n in range(60)]


@pytest.mark.parametrize("power_loss", [False, True])
async def test_nothing_answered_is_forgotten_when_the_leader_dies(
    catalogue_group: CatalogueGroup, *, power_loss: bool
) -> None:
    await found(catalogue_group)
    follower = await catalogue_group.follower()
    answered: list[int] = []
    unknown: list[int] = []
    for number in range(1, 60):
        if number % 10 == 0:
            leader = await catalogue_group.wait_for_leader()
            if leader is not follower:
                catalogue_group.kill(leader, power_loss=power_loss)
                asyncio.get_running_loop().call_later(1.0, catalogue_group.start, leader)
        try:
            await catalogue_group.services[follower.id].submit(topic(number))
            answered.append(number)
        except Unavailable:
            unknown.append(number)
    assert len(answered) > 50
    await catalogue_group.wait_until(
        lambda: len({tuple(n) for n in names(catalogue_group).values()}) == 1
    )
    kept = set(names(catalogue_group)[follower.id])
    assert {f"t{n}" for n in answered} <= kept <= {f"t{n}" for n in answered + unknown}


async def test_a_leader_that_was_cut_off_decides_nothing_on_what_it_remembers(
    catalogue_group: CatalogueGroup,
) -> None:
    await found(catalogue_group)
    old = await catalogue_group.wait_for_leader()
    catalogue_group.isolate(old)
    late = asyncio.ensure_future(catalogue_group.services[old.id].submit(topic(1)))
    rest = [node for node in catalogue_group.nodes.values() if node is not old]
    await catalogue_group.wait_until(lambda: catalogue_group.leader() in rest)
    new = catalogue_group.leader()
    assert new is not None
    await catalogue_group.services[new.id].submit(topic(1, configs={"retention.ms": "1"}))
    catalogue_group.heal()
    with pytest.raises((NotLeader, OutcomeUnknown, InvalidRequest)):
        await late
    await catalogue_group.wait_until(
        lambda: len({tuple(n) for n in names(catalogue_group).values()}) == 1
    )
    for service in catalogue_group.services.values():
        kept = service.catalogue.topic("t1")
        assert kept is not None
        assert kept.configs == {"retention.ms": "1"}


async def test_a_node_that_missed_much_is_brought_up_to_date_by_a_snapshot(tmp_path: Path) -> None:
    async with new_catalogue_group(
        tmp_path, settings=DriverSettings(snapshot_entries=10, keep_entries=2)
    ) as catalogue_group:
        await found(catalogue_group)
        behind = await catalogue_group.follower()
        catalogue_group.kill(behind, power_loss=False)
        leader = await catalogue_group.wait_for_leader()
        for number in range(1, 40):
            await catalogue_group.services[leader.id].submit(topic(number))
        catalogue_group.restored.clear()
        catalogue_group.start(behind)
        await catalogue_group.wait_until(lambda: len(names(catalogue_group)[behind.id]) == 39)
        assert (
            catalogue_group.restored.count(behind.id) == 2
        )  # its own beginning, then the leader's
        service = catalogue_group.services[behind.id]
        assert service.catalogue.state() == catalogue_group.services[leader.id].catalogue.state()
        assert (
            len([f for f in catalogue_group.facts[behind.id] if isinstance(f, TopicCreated)]) < 39
        )


async def test_a_command_that_is_too_large_is_refused_and_those_beside_it_are_decided(
    tmp_path: Path,
) -> None:
    async with new_catalogue_group(
        tmp_path, settings=DriverSettings(entry_bytes_max=4_000)
    ) as catalogue_group:
        leader = await found(catalogue_group)
        large = SetCredentials("u", Credentials(argon2="x" * 5_000))
        commands = [leader.submit(one) for one in (topic(2), large, topic(3))]
        _, refusal, _ = await asyncio.gather(*commands, return_exceptions=True)
        assert isinstance(refusal, InvalidRequest)
        assert "exceeds the limit" in str(refusal)
        await leader.submit(topic(4))
        await catalogue_group.wait_until(
            lambda: set(map(tuple, names(catalogue_group).values())) == {("t2", "t3", "t4")}
        )


async def test_commands_that_are_too_large_together_are_decided_one_by_one(tmp_path: Path) -> None:
    async with new_catalogue_group(
        tmp_path, settings=DriverSettings(entry_bytes_max=4_000)
    ) as catalogue_group:
        leader = await found(catalogue_group)
        commands = [SetCredentials(f"u{n}", Credentials(argon2="x" * 1_500)) for n in range(5)]
        await asyncio.gather(*map(leader.submit, commands))
        assert len(leader.catalogue.security.users) == 5


async def test_without_a_majority_the_caller_is_told_so(catalogue_group: CatalogueGroup) -> None:
    await found(catalogue_group)
    follower = await catalogue_group.follower()
    for node in catalogue_group.nodes.values():
        if node is not follower:
            catalogue_group.kill(node, power_loss=False)
    with pytest.raises((NotLeader, Unreachable)):
        await catalogue_group.services[follower.id].submit(topic(1))


async def test_a_command_that_a_stopping_leader_was_deciding_is_decided_once(
    catalogue_group: CatalogueGroup,
) -> None:
    await found(catalogue_group)
    follower = await catalogue_group.follower()
    leader = await catalogue_group.wait_for_leader()
    asked = asyncio.ensure_future(catalogue_group.services[follower.id].submit(topic(1)))
    before = driver_of(leader).status.last_index
    while driver_of(leader).status.last_index == before:  # noqa: ASYNC110 - every step counts
        await asyncio.sleep(0.0001)
    catalogue_group.kill(leader, power_loss=False)
    created = await asked
    rest = [node.id for node in catalogue_group.nodes.values() if node is not leader]
    await catalogue_group.wait_until(
        lambda: all(names(catalogue_group)[node] == ["t1"] for node in rest)
    )
    for node in rest:
        assert catalogue_group.services[node].catalogue.topic("t1") == created
        assert [type(f) for f in catalogue_group.facts[node]].count(TopicCreated) == 1


async def test_a_leader_that_has_stopped_leaves_the_decision_to_the_next(
    catalogue_group: CatalogueGroup,
) -> None:
    await found(catalogue_group)
    follower = await catalogue_group.follower()
    leader = await catalogue_group.wait_for_leader()
    await catalogue_group.services[leader.id].close()
    asked = asyncio.ensure_future(catalogue_group.services[follower.id].submit(topic(1)))
    await asyncio.sleep(0.1)
    catalogue_group.kill(leader, power_loss=False)
    created = await asked
    assert catalogue_group.services[follower.id].catalogue.topic("t1") == created


@pytest.mark.parametrize("data", [b"", b"\x92\xa1x\xc0", b"junk"])
async def test_what_is_no_command_is_refused(catalogue_group: CatalogueGroup, data: bytes) -> None:
    leader = await found(catalogue_group)
    with pytest.raises(Corrupt, match="not a command"):
        await leader.decide_for(data)


async def test_a_new_leader_first_learns_what_was_decided_before_it(
    catalogue_group: CatalogueGroup,
) -> None:
    await found(catalogue_group)
    old = await catalogue_group.wait_for_leader()
    rest = [node for node in catalogue_group.nodes.values() if node is not old]
    await catalogue_group.wait_until(lambda: all(driver_of(n).status.applied >= 4 for n in rest))
    tries: list[asyncio.Task[Any]] = []

    def on_role(node: NodeId, role: SoftState) -> None:
        if role.state is StateType.StateLeader:
            tries.append(asyncio.ensure_future(catalogue_group.services[node].submit(topic(1))))

    before = [driver_of(node).status.last_index for node in rest]
    lost = asyncio.ensure_future(catalogue_group.services[old.id].submit(topic(1)))
    while all(  # noqa: ASYNC110 - every step of virtual time counts
        driver_of(n).status.last_index == b for n, b in zip(rest, before, strict=True)
    ):
        await asyncio.sleep(0.0001)
    # Another node has the entry in its log, and nobody has told it that it is committed.
    catalogue_group.on_role = on_role
    catalogue_group.kill(old, power_loss=False)
    with pytest.raises(MainstemError):
        await lost
    await catalogue_group.wait_until(lambda: bool(tries))
    with pytest.raises(InvalidRequest, match="already exists"):
        await tries[0]
    await catalogue_group.wait_until(
        lambda: all(names(catalogue_group)[n.id] == ["t1"] for n in rest)
    )
    for node in rest:
        assert [type(f) for f in catalogue_group.facts[node.id]].count(TopicCreated) == 1
