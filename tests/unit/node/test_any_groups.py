"""Groups are shown, listed and deleted at any node, by the nodes that coordinate them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from mainstem.broker.groups_api import (
    DescribedGroup,
    DescribedMember,
    GroupView,
    ListedGroup,
    Standing,
)
from mainstem.cluster.peers.frames import Chunk, Service
from mainstem.cluster.peers.refusals import Unreachable, decode_error, encode_error
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.node.any_groups import AnyNodeGroups
from mainstem.testing.virtual_loop import VirtualLoop

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
MEMBER = DescribedMember("m", "i", "app", "/127.0.0.1", 45_000, 300_000, b"", b"")


def _partition_of(group_id: str) -> int:
    return int(group_id[1:]) % 3


class Town:
    """Three nodes and the groups g0 to g5; group n is kept in partition n % 3."""

    def __init__(self) -> None:
        self.groups = {f"g{n}" for n in range(6)}
        self.writers = {0: ONE, 1: TWO, 2: THREE}  # what the catalogue says
        self.shards = dict(self.writers)  # who really coordinates
        self.refusals: list[MainstemError] = []
        self.deleted_at: list[NodeId] = []
        self.desks = {
            node: AnyNodeGroups(Office(self, node), node, self, Register(self, node))
            for node in (ONE, TWO, THREE)
        }

    def check(self, node: NodeId, partition: int) -> None:
        if self.shards[partition] != node:
            raise Unavailable(ErrorCode.NOT_COORDINATOR, "another node coordinates it")

    async def ask(
        self, node: NodeId, service: Service, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is Service.GROUPS
        await asyncio.sleep(0.001)
        if self.refusals:
            raise self.refusals.pop(0)
        try:
            answer = await self.desks[node].serve(ONE, memoryview(b"".join(map(bytes, chunks))))
        except MainstemError as error:
            raise decode_error(encode_error(error)) from error
        return memoryview(b"".join(map(bytes, answer)))


class Office:
    """The groups that one node coordinates."""

    def __init__(self, town: Town, node: NodeId) -> None:
        self._town = town
        self._node = node

    async def list(self) -> Sequence[ListedGroup]:
        return [
            ListedGroup(group, "Stable", "consumer", 3, 1, "consumer")
            for group in sorted(self._town.groups)
            if self._town.shards[_partition_of(group)] == self._node
        ]

    async def view(self, group_id: str) -> GroupView:
        self._check(group_id)
        group = DescribedGroup(group_id, "Stable", "consumer", "range", 3, "m", (MEMBER,))
        return GroupView(group, "classic", (Standing("t", self._node, 7, "note"),))

    async def delete(self, group_id: str) -> None:
        self._check(group_id)
        self._town.groups.discard(group_id)
        self._town.deleted_at.append(self._node)

    def _check(self, group_id: str) -> None:
        self._town.check(self._node, _partition_of(group_id))
        if group_id not in self._town.groups:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=group_id)


class Register:
    """What one node knows of coordinators."""

    def __init__(self, town: Town, node: NodeId) -> None:
        self._town = town
        self._node = node

    def partition_of(self, group_id: str) -> int:
        return _partition_of(group_id)

    def check_here(self, partition: int) -> None:
        self._town.check(self._node, partition)

    def by_node(self) -> Mapping[NodeId, Sequence[int]]:
        found: dict[NodeId, list[int]] = {}
        for partition, node in self._town.writers.items():
            found.setdefault(node, []).append(partition)
        return found


def play(story: Callable[[Town], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(story(Town()))


async def names(town: Town, node: NodeId) -> list[str]:
    return sorted(group.group_id for group in await town.desks[node].list())


@pytest.mark.parametrize("node", [ONE, TWO, THREE])
def test_every_node_lists_and_shows_the_groups_of_all_nodes(node: NodeId) -> None:
    async def story(town: Town) -> None:
        assert await names(town, node) == [f"g{n}" for n in range(6)]
        for number in range(6):
            view = await town.desks[node].view(f"g{number}")
            assert (view.group.group_id, view.type) == (f"g{number}", "classic")
            assert view.group.members == (MEMBER,)
            assert view.standings == (Standing("t", number % 3 + 1, 7, "note"),)

    play(story)


def test_a_group_is_deleted_by_its_coordinator_and_unknown_everywhere_afterwards() -> None:
    async def story(town: Town) -> None:
        await town.desks[ONE].delete("g1")
        assert town.deleted_at == [TWO]
        for node in (ONE, TWO, THREE):
            with pytest.raises(InvalidRequest) as caught:
                await town.desks[node].view("g1")
            assert caught.value.code is ErrorCode.UNKNOWN_GROUP

    play(story)


def test_a_group_that_moves_is_followed_and_listed_once() -> None:
    async def story(town: Town) -> None:
        town.shards[1] = THREE  # the catalogue does not know yet
        asyncio.get_running_loop().call_later(1.0, town.writers.__setitem__, 1, THREE)
        listed, view = await asyncio.gather(names(town, ONE), town.desks[ONE].view("g4"))
        assert listed == [f"g{n}" for n in range(6)]
        assert view.standings[0].partition == THREE

    play(story)


def test_a_list_is_refused_rather_than_incomplete() -> None:
    async def story(town: Town) -> None:
        town.writers[2] = NO_NODE
        with pytest.raises(Unavailable) as caught:
            await names(town, ONE)
        assert caught.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
        with pytest.raises(Unavailable):
            await town.desks[ONE].view("g2")
        assert (await town.desks[ONE].view("g1")).group.group_id == "g1"

    play(story)


def test_a_node_that_was_told_nothing_is_asked_again() -> None:
    async def story(town: Town) -> None:
        town.refusals = [Unreachable("gone"), Unavailable(ErrorCode.COORDINATOR_LOADING)]
        await town.desks[ONE].delete("g2")
        assert town.deleted_at == [THREE]

    play(story)


@pytest.mark.parametrize("code", [ErrorCode.TIMED_OUT, ErrorCode.COORDINATOR_UNAVAILABLE])
def test_only_who_looks_asks_again_where_something_may_have_been_done(code: ErrorCode) -> None:
    async def story(town: Town) -> None:
        town.refusals = [Unavailable(code)]
        with pytest.raises(Unavailable) as caught:
            await town.desks[ONE].delete("g2")
        assert caught.value.code is code
        assert town.deleted_at == []
        town.refusals = [Unavailable(code)]
        assert (await town.desks[ONE].view("g2")).group.group_id == "g2"

    play(story)


def test_a_deletion_waits_for_the_next_coordinator() -> None:
    async def story(town: Town) -> None:
        town.writers[2] = NO_NODE
        asyncio.get_running_loop().call_later(1.0, town.writers.__setitem__, 2, THREE)
        await town.desks[ONE].delete("g2")
        assert town.deleted_at == [THREE]

    play(story)


def test_before_anything_was_stored_there_are_no_groups() -> None:
    async def story(town: Town) -> None:
        town.groups.clear()
        town.writers.clear()
        assert await names(town, TWO) == []
        town.shards = dict.fromkeys(range(3), TWO)
        with pytest.raises(InvalidRequest):
            await town.desks[TWO].view("g0")

    play(story)


@pytest.mark.parametrize("body", [b"", b"junk", b"\x92\xa5Other\x01"])
def test_what_is_no_question_is_refused(body: bytes) -> None:
    async def story(town: Town) -> None:
        with pytest.raises(Corrupt):
            await town.desks[TWO].serve(ONE, memoryview(body))

    play(story)
