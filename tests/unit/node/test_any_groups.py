"""Groups are shown, listed and deleted at any node, by the nodes that coordinate them."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from tests.kit.loop import virtual_time

from mainstem.broker.api.groups import (
    DescribedGroup,
    DescribedMember,
    GroupView,
    ListedGroup,
    PartitionProgress,
)
from mainstem.cluster.peers.error_codec import Unreachable, decode_error, encode_error
from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.node.clustering.group_forwarding import ForwardingGroups

pytestmark = virtual_time

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
MEMBER = DescribedMember("m", "i", "app", "/127.0.0.1", 45_000, 300_000, b"", b"")


def _partition_of(group_id: str) -> int:
    return int(group_id[1:]) % 3


class GroupCluster:
    """Three nodes and the groups g0 to g5; group n is kept in partition n % 3."""

    def __init__(self) -> None:
        self.groups = {f"g{n}" for n in range(6)}
        self.writers = {0: ONE, 1: TWO, 2: THREE}  # what the catalogue says
        self.shards = dict(self.writers)  # who really coordinates
        self.refusals: list[MainstemError] = []
        self.deleted_at: list[NodeId] = []
        self.groups_of = {
            node: ForwardingGroups(NodeGroups(self, node), node, self, CoordinatorTable(self, node))
            for node in (ONE, TWO, THREE)
        }

    def check(self, node: NodeId, partition: int) -> None:
        if self.shards[partition] != node:
            raise Unavailable(ErrorCode.NOT_COORDINATOR, "another node coordinates it")

    async def ask(
        self, node: NodeId, service: PeerService, chunks: Sequence[Chunk], *, timeout_s: float
    ) -> memoryview:
        assert service is PeerService.GROUPS
        await asyncio.sleep(0.001)
        if self.refusals:
            raise self.refusals.pop(0)
        try:
            answer = await self.groups_of[node].serve(ONE, memoryview(b"".join(map(bytes, chunks))))
        except MainstemError as error:
            raise decode_error(encode_error(error)) from error
        return memoryview(b"".join(map(bytes, answer)))


class NodeGroups:
    """The groups that one node coordinates."""

    def __init__(self, cluster: GroupCluster, node: NodeId) -> None:
        self._cluster = cluster
        self._node = node

    async def list(self) -> Sequence[ListedGroup]:
        return [
            ListedGroup(group, "Stable", "consumer", 3, 1, "consumer")
            for group in sorted(self._cluster.groups)
            if self._cluster.shards[_partition_of(group)] == self._node
        ]

    async def view(self, group_id: str) -> GroupView:
        self._check(group_id)
        group = DescribedGroup(group_id, "Stable", "consumer", "range", 3, "m", (MEMBER,))
        return GroupView(group, "classic", (PartitionProgress("t", self._node, 7, "note"),))

    async def delete(self, group_id: str) -> None:
        self._check(group_id)
        self._cluster.groups.discard(group_id)
        self._cluster.deleted_at.append(self._node)

    def _check(self, group_id: str) -> None:
        self._cluster.check(self._node, _partition_of(group_id))
        if group_id not in self._cluster.groups:
            raise InvalidRequest(ErrorCode.UNKNOWN_GROUP, subject=group_id)


class CoordinatorTable:
    """What one node knows of coordinators."""

    def __init__(self, cluster: GroupCluster, node: NodeId) -> None:
        self._cluster = cluster
        self._node = node

    def partition_of(self, group_id: str) -> int:
        return _partition_of(group_id)

    def check_here(self, partition: int) -> None:
        self._cluster.check(self._node, partition)

    def by_node(self) -> Mapping[NodeId, Sequence[int]]:
        found: dict[NodeId, list[int]] = {}
        for partition, node in self._cluster.writers.items():
            found.setdefault(node, []).append(partition)
        return found


@pytest.fixture
def cluster() -> GroupCluster:
    return GroupCluster()


async def names(cluster: GroupCluster, node: NodeId) -> list[str]:
    return sorted(group.group_id for group in await cluster.groups_of[node].list())


@pytest.mark.parametrize("node", [ONE, TWO, THREE])
async def test_every_node_lists_and_shows_the_groups_of_all_nodes(
    cluster: GroupCluster, node: NodeId
) -> None:
    assert await names(cluster, node) == [f"g{n}" for n in range(6)]
    for number in range(6):
        view = await cluster.groups_of[node].view(f"g{number}")
        assert (view.group.group_id, view.type) == (f"g{number}", "classic")
        assert view.group.members == (MEMBER,)
        assert view.standings == (PartitionProgress("t", number % 3 + 1, 7, "note"),)


async def test_a_group_is_deleted_by_its_coordinator_and_unknown_everywhere_afterwards(
    cluster: GroupCluster,
) -> None:
    await cluster.groups_of[ONE].delete("g1")
    assert cluster.deleted_at == [TWO]
    for node in (ONE, TWO, THREE):
        with pytest.raises(InvalidRequest) as caught:
            await cluster.groups_of[node].view("g1")
        assert caught.value.code is ErrorCode.UNKNOWN_GROUP


async def test_a_group_that_moves_is_followed_and_listed_once(cluster: GroupCluster) -> None:
    cluster.shards[1] = THREE  # the catalogue does not know yet
    asyncio.get_running_loop().call_later(1.0, cluster.writers.__setitem__, 1, THREE)
    listed, view = await asyncio.gather(names(cluster, ONE), cluster.groups_of[ONE].view("g4"))
    assert listed == [f"g{n}" for n in range(6)]
    assert view.standings[0].partition == THREE


async def test_a_list_is_refused_rather_than_incomplete(cluster: GroupCluster) -> None:
    cluster.writers[2] = NO_NODE
    with pytest.raises(Unavailable) as caught:
        await names(cluster, ONE)
    assert caught.value.code is ErrorCode.COORDINATOR_UNAVAILABLE
    with pytest.raises(Unavailable):
        await cluster.groups_of[ONE].view("g2")
    assert (await cluster.groups_of[ONE].view("g1")).group.group_id == "g1"


async def test_a_node_that_was_told_nothing_is_asked_again(cluster: GroupCluster) -> None:
    cluster.refusals = [Unreachable("gone"), Unavailable(ErrorCode.COORDINATOR_LOADING)]
    await cluster.groups_of[ONE].delete("g2")
    assert cluster.deleted_at == [THREE]


@pytest.mark.parametrize("code", [ErrorCode.TIMED_OUT, ErrorCode.COORDINATOR_UNAVAILABLE])
async def test_only_who_looks_asks_again_where_something_may_have_been_done(
    cluster: GroupCluster, code: ErrorCode
) -> None:
    cluster.refusals = [Unavailable(code)]
    with pytest.raises(Unavailable) as caught:
        await cluster.groups_of[ONE].delete("g2")
    assert caught.value.code is code
    assert cluster.deleted_at == []
    cluster.refusals = [Unavailable(code)]
    assert (await cluster.groups_of[ONE].view("g2")).group.group_id == "g2"


async def test_a_deletion_waits_for_the_next_coordinator(cluster: GroupCluster) -> None:
    cluster.writers[2] = NO_NODE
    asyncio.get_running_loop().call_later(1.0, cluster.writers.__setitem__, 2, THREE)
    await cluster.groups_of[ONE].delete("g2")
    assert cluster.deleted_at == [THREE]


async def test_before_anything_was_stored_there_are_no_groups(cluster: GroupCluster) -> None:
    cluster.groups.clear()
    cluster.writers.clear()
    assert await names(cluster, TWO) == []
    cluster.shards = dict.fromkeys(range(3), TWO)
    with pytest.raises(InvalidRequest):
        await cluster.groups_of[TWO].view("g0")


@pytest.mark.parametrize("body", [b"", b"junk", b"\x92\xa5Other\x01"])
async def test_what_is_no_question_is_refused(cluster: GroupCluster, body: bytes) -> None:
    with pytest.raises(Corrupt):
        await cluster.groups_of[TWO].serve(ONE, memoryview(body))
