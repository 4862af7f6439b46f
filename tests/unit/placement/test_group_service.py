"""The catalogue kept by three nodes: real Raft drivers and files under virtual time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.unit.placement.council import Council, driver_of, found, names, play, topic

from mainstem.cluster.peers.refusals import Unreachable
from mainstem.cluster.raft.answers_driver import OutcomeUnknown
from mainstem.cluster.raft.core import NotLeader
from mainstem.cluster.raft.doors_driver import DriverSettings
from mainstem.cluster.raft.messages import SoftState, StateType
from mainstem.model.errors import Corrupt, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NodeId
from mainstem.placement.records import AllocateProducerIds, TopicCreated


def test_what_the_leader_decides_everybody_replays(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        leader = await found(council)
        created = await leader.submit(topic(1))
        assert leader.catalogue.topic("t1") == created
        await council.wait_until(lambda: set(map(tuple, names(council).values())) == {("t1",)})
        for facts in council.facts.values():
            assert [type(fact).__name__ for fact in facts] == [
                "ClusterFormed",
                "FeaturesSet",
                "NodeRegistered",
                "CommandDecided",
                "TopicCreated",
                "CommandDecided",
            ]

    play(tmp_path, story)


def test_a_follower_asks_the_leader_and_sees_the_outcome_itself(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        follower = council.services[(await council.follower()).id]
        created = await follower.submit(topic(1))
        assert follower.catalogue.topic("t1") == created
        with pytest.raises(InvalidRequest, match="already exists"):
            await follower.submit(topic(1))
        start, until = await follower.submit(AllocateProducerIds(NodeId(1), 1, 10))
        assert until - start == 10

    play(tmp_path, story)


def test_commands_of_many_callers_on_many_nodes_are_each_decided_once(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        await council.follower()
        services = list(council.services.values())
        commands = [services[n % 3].submit(AllocateProducerIds(NodeId(1), 1, 5)) for n in range(60)]
        blocks = await asyncio.gather(*commands)
        taken = sorted(start for start, _ in blocks)
        assert taken == [taken[0] + 5 * n for n in range(60)]

    play(tmp_path, story)


@pytest.mark.parametrize("power_loss", [False, True])
def test_nothing_answered_is_forgotten_when_the_leader_dies(
    tmp_path: Path, *, power_loss: bool
) -> None:
    async def story(council: Council) -> None:
        await found(council)
        follower = await council.follower()
        answered: list[int] = []
        unknown: list[int] = []
        for number in range(1, 60):
            if number % 10 == 0:
                leader = await council.wait_for_leader()
                if leader is not follower:
                    council.kill(leader, power_loss=power_loss)
                    asyncio.get_running_loop().call_later(1.0, council.start, leader)
            try:
                await council.services[follower.id].submit(topic(number))
                answered.append(number)
            except Unavailable:
                unknown.append(number)
        assert len(answered) > 50
        await council.wait_until(lambda: len({tuple(n) for n in names(council).values()}) == 1)
        kept = set(names(council)[follower.id])
        assert {f"t{n}" for n in answered} <= kept <= {f"t{n}" for n in answered + unknown}

    play(tmp_path, story)


def test_a_leader_that_was_cut_off_decides_nothing_on_what_it_remembers(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        old = await council.wait_for_leader()
        council.isolate(old)
        late = asyncio.ensure_future(council.services[old.id].submit(topic(1)))
        rest = [node for node in council.nodes.values() if node is not old]
        await council.wait_until(lambda: council.leader() in rest)
        new = council.leader()
        assert new is not None
        await council.services[new.id].submit(topic(1, configs={"retention.ms": "1"}))
        council.heal()
        with pytest.raises((NotLeader, OutcomeUnknown, InvalidRequest)):
            await late
        await council.wait_until(lambda: len({tuple(n) for n in names(council).values()}) == 1)
        for service in council.services.values():
            kept = service.catalogue.topic("t1")
            assert kept is not None
            assert kept.configs == {"retention.ms": "1"}

    play(tmp_path, story)


def test_a_node_that_missed_much_is_brought_up_to_date_by_a_snapshot(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        behind = await council.follower()
        council.kill(behind, power_loss=False)
        leader = await council.wait_for_leader()
        for number in range(1, 40):
            await council.services[leader.id].submit(topic(number))
        council.restored.clear()
        council.start(behind)
        await council.wait_until(lambda: len(names(council)[behind.id]) == 39)
        assert council.restored.count(behind.id) == 2  # its own beginning, then the leader's
        service = council.services[behind.id]
        assert service.catalogue.state() == council.services[leader.id].catalogue.state()
        assert len([f for f in council.facts[behind.id] if isinstance(f, TopicCreated)]) < 39

    play(tmp_path, story, settings=DriverSettings(snapshot_entries=10, keep_entries=2))


def test_without_a_majority_the_caller_is_told_so(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        follower = await council.follower()
        for node in council.nodes.values():
            if node is not follower:
                council.kill(node, power_loss=False)
        with pytest.raises((NotLeader, Unreachable)):
            await council.services[follower.id].submit(topic(1))

    play(tmp_path, story)


def test_a_command_that_a_stopping_leader_was_deciding_is_decided_once(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        follower = await council.follower()
        leader = await council.wait_for_leader()
        asked = asyncio.ensure_future(council.services[follower.id].submit(topic(1)))
        before = driver_of(leader).status.last_index
        while driver_of(leader).status.last_index == before:  # noqa: ASYNC110 - every step counts
            await asyncio.sleep(0.0001)
        council.kill(leader, power_loss=False)
        created = await asked
        rest = [node.id for node in council.nodes.values() if node is not leader]
        await council.wait_until(lambda: all(names(council)[node] == ["t1"] for node in rest))
        for node in rest:
            assert council.services[node].catalogue.topic("t1") == created
            assert [type(f) for f in council.facts[node]].count(TopicCreated) == 1

    play(tmp_path, story)


def test_a_leader_that_has_stopped_leaves_the_decision_to_the_next(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        follower = await council.follower()
        leader = await council.wait_for_leader()
        await council.services[leader.id].close()
        asked = asyncio.ensure_future(council.services[follower.id].submit(topic(1)))
        await asyncio.sleep(0.1)
        council.kill(leader, power_loss=False)
        created = await asked
        assert council.services[follower.id].catalogue.topic("t1") == created

    play(tmp_path, story)


@pytest.mark.parametrize("data", [b"", b"\x92\xa1x\xc0", b"junk"])
def test_what_is_no_command_is_refused(tmp_path: Path, data: bytes) -> None:
    async def story(council: Council) -> None:
        leader = await found(council)
        with pytest.raises(Corrupt, match="not a command"):
            await leader.decide_for(data)

    play(tmp_path, story)


def test_a_new_leader_first_learns_what_was_decided_before_it(tmp_path: Path) -> None:
    async def story(council: Council) -> None:
        await found(council)
        old = await council.wait_for_leader()
        rest = [node for node in council.nodes.values() if node is not old]
        await council.wait_until(lambda: all(driver_of(n).status.applied >= 4 for n in rest))
        tries: list[asyncio.Task[Any]] = []

        def on_role(node: NodeId, role: SoftState) -> None:
            if role.state is StateType.StateLeader:
                tries.append(asyncio.ensure_future(council.services[node].submit(topic(1))))

        before = [driver_of(node).status.last_index for node in rest]
        lost = asyncio.ensure_future(council.services[old.id].submit(topic(1)))
        while all(  # noqa: ASYNC110 - every step of virtual time counts
            driver_of(n).status.last_index == b for n, b in zip(rest, before, strict=True)
        ):
            await asyncio.sleep(0.0001)
        # Another node has the entry in its log, and nobody has told it that it is committed.
        council.on_role = on_role
        council.kill(old, power_loss=False)
        with pytest.raises(MainstemError):
            await lost
        await council.wait_until(lambda: bool(tries))
        with pytest.raises(InvalidRequest, match="already exists"):
            await tries[0]
        await council.wait_until(lambda: all(names(council)[n.id] == ["t1"] for n in rest))
        for node in rest:
            assert [type(f) for f in council.facts[node.id]].count(TopicCreated) == 1

    play(tmp_path, story)
