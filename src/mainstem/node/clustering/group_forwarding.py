"""Groups at any node: shown, listed and deleted by the nodes that coordinate them.

    a node that is asked ── View, Delete ──▶ the coordinator of the group
                         ── List ──────────▶ every node that coordinates groups

For administrators, who come to whichever node they reach; members of groups find the coordinator by
themselves. Promises: a list holds every group of the cluster or is refused; what is deleted was
deleted by its coordinator. While coordinators move the question is asked again, for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

from mainstem.broker.api.groups import AllGroups, GroupView, ListedGroup
from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.peers.requests_service import PeerRequester, retry_refused
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import NO_NODE, NodeId

WAIT_MAX_S: Final = 10.0
ASK_TIMEOUT_S: Final = 15.0
# Nothing was done where these are answered.
_UNDONE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOADING, ErrorCode.WRITER_UNAVAILABLE}
)
# Something may have been done: who only looks tries again.
_UNKNOWN: Final = frozenset({ErrorCode.COORDINATOR_UNAVAILABLE, ErrorCode.TIMED_OUT})
Found = TypeVar("Found")


class Coordinators(Protocol):
    """Who coordinates what, as far as this node knows."""

    def partition_of(self, group_id: str) -> int:
        """The partition of the internal topic that a group is kept in."""
        ...

    def check_here(self, partition: int) -> None:
        """Refuse where this node does not coordinate the groups of a partition."""
        ...

    def by_node(self) -> Mapping[NodeId, Sequence[int]]:
        """The partitions that each node coordinates; ``NO_NODE``: nobody now."""
        ...


class List(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The groups of these partitions?"""

    partitions: Sequence[int]


class View(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What is known of a group?"""

    group_id: str


class Delete(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Forget an empty group."""

    group_id: str


class _NoCoordinator(Unavailable):
    """There is no coordinator now, so nobody was asked."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_UNAVAILABLE, "nobody coordinates it now")


_asked = msgspec.msgpack.Decoder(List | View | Delete)
_encode = msgspec.msgpack.Encoder().encode


class ForwardingGroups:
    """The groups of all nodes.

    Args:
        local: those that this node coordinates.
        node: this node.
        peers: how others are asked.
        coordinators: who coordinates what.
    """

    def __init__(
        self, local: AllGroups, node: NodeId, peers: PeerRequester, coordinators: Coordinators
    ) -> None:
        self._local = local
        self._node = node
        self._peers = peers
        self._coordinators = coordinators

    async def list(self) -> Sequence[ListedGroup]:
        """Every group of the cluster.

        Raises:
            Unavailable: some are coordinated by nobody, or by a node that does not answer.
        """

        async def every() -> Sequence[ListedGroup]:
            asked = self._coordinators.by_node().items()
            found = await asyncio.gather(*(self._listed(node, parts) for node, parts in asked))
            return [group for groups in found for group in groups]

        return await _patiently(every, _UNDONE | _UNKNOWN)

    async def view(self, group_id: str) -> GroupView:
        """One group with its members and where it stands."""

        async def one() -> GroupView:
            node = self._coordinator_of(group_id)
            if node == self._node:
                return await self._local.view(group_id)
            return _decoded(await self._ask(node, View(group_id)), GroupView)

        return await _patiently(one, _UNDONE | _UNKNOWN)

    async def delete(self, group_id: str) -> None:
        """Forget an empty group and where it stood.

        Raises:
            Unavailable: it has no coordinator now, or it is not known whether that has done it.
        """

        async def one() -> None:
            node = self._coordinator_of(group_id)
            if node == self._node:
                await self._local.delete(group_id)
            else:
                await self._ask(node, Delete(group_id))

        await _patiently(one, _UNDONE)

    async def serve(self, _: NodeId, body: memoryview) -> Sequence[Chunk]:
        """Another node asks (the handler of ``PeerService.GROUPS``)."""
        try:
            asked = _asked.decode(body)
        except DECODE_ERRORS as error:
            raise Corrupt(f"not a question about groups: {error}") from error
        if isinstance(asked, List):
            return [_encode(await self._listed_here(asked.partitions))]
        if isinstance(asked, View):
            return [_encode(await self._local.view(asked.group_id))]
        await self._local.delete(asked.group_id)
        return ()

    def _coordinator_of(self, group_id: str) -> NodeId:
        partition = self._coordinators.partition_of(group_id)
        for node, partitions in self._coordinators.by_node().items():
            if partition in partitions:
                return node
        return self._node  # nothing was ever stored

    async def _listed(self, node: NodeId, partitions: Sequence[int]) -> Sequence[ListedGroup]:
        if node == self._node:
            return await self._listed_here(partitions)
        return _decoded(await self._ask(node, List(partitions)), list[ListedGroup])

    async def _listed_here(self, partitions: Sequence[int]) -> Sequence[ListedGroup]:
        """The groups of exactly these: what this node no longer has another one lists."""
        coordinators, wanted = self._coordinators, frozenset(partitions)
        for partition in wanted:
            coordinators.check_here(partition)
        groups = await self._local.list()
        return [group for group in groups if coordinators.partition_of(group.group_id) in wanted]

    async def _ask(self, node: NodeId, asked: List | View | Delete) -> memoryview:
        if node == NO_NODE:
            raise _NoCoordinator
        return await self._peers.ask(
            node, PeerService.GROUPS, [_encode(asked)], timeout_s=ASK_TIMEOUT_S
        )


async def _patiently(
    attempt: Callable[[], Awaitable[Found]], repeatable: Container[ErrorCode]
) -> Found:
    return await retry_refused(
        attempt,
        lambda error: error.code in repeatable or isinstance(error, _NoCoordinator),
        timeout_s=WAIT_MAX_S,
    )


def _decoded(answer: memoryview, kind: type[Found]) -> Found:
    try:
        return msgspec.msgpack.decode(answer, type=kind)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not what a coordinator tells of groups: {error}") from error
