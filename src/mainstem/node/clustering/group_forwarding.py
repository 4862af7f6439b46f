"""Groups at any node: shown, listed and deleted by the nodes that coordinate them.

    a requested node     ── View, Delete ──▶ the coordinator of the group
                         ── List ──────────▶ every node that coordinates groups

For administrators, who may connect to any node; members of groups find the coordinator by
themselves. Guarantees: a list holds every group of the cluster or is refused; a group is deleted
only by its coordinator. While coordinators move, requests are repeated for a while.
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
# With these errors nothing was done.
_UNDONE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOADING, ErrorCode.WRITER_UNAVAILABLE}
)
# With these something may have been done: only reads are retried.
_UNKNOWN: Final = frozenset({ErrorCode.COORDINATOR_UNAVAILABLE, ErrorCode.TIMED_OUT})
Found = TypeVar("Found")


class Coordinators(Protocol):
    """Which node coordinates which groups, as far as this node knows."""

    def partition_of(self, group_id: str) -> int:
        """The partition of the internal topic that a group is kept in."""
        ...

    def check_here(self, partition: int) -> None:
        """Refuse where this node does not coordinate the groups of a partition."""
        ...

    def by_node(self) -> Mapping[NodeId, Sequence[int]]:
        """The partitions that each node coordinates; ``NO_NODE``: those without a coordinator."""
        ...


class List(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Request: list the groups of these partitions."""

    partitions: Sequence[int]


class View(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Request: describe a group."""

    group_id: str


class Delete(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Request: delete an empty group."""

    group_id: str


class _NoCoordinator(Unavailable):
    """There is no coordinator now, so no request was sent."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_UNAVAILABLE, "it has no coordinator now")


_asked = msgspec.msgpack.Decoder(List | View | Delete)
_encode = msgspec.msgpack.Encoder().encode


class ForwardingGroups:
    """The groups of all nodes.

    Args:
        local: those that this node coordinates.
        node: this node.
        peers: sends requests to other nodes.
        coordinators: which node coordinates which groups.
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
            Unavailable: some have no coordinator, or one that does not answer.
        """

        async def every() -> Sequence[ListedGroup]:
            asked = self._coordinators.by_node().items()
            found = await asyncio.gather(*(self._listed(node, parts) for node, parts in asked))
            return [group for groups in found for group in groups]

        return await _patiently(every, _UNDONE | _UNKNOWN)

    async def view(self, group_id: str) -> GroupView:
        """One group with its members and committed offsets."""

        async def one() -> GroupView:
            node = self._coordinator_of(group_id)
            if node == self._node:
                return await self._local.view(group_id)
            return _decoded(await self._ask(node, View(group_id)), GroupView)

        return await _patiently(one, _UNDONE | _UNKNOWN)

    async def delete(self, group_id: str) -> None:
        """Delete an empty group and its committed offsets.

        Raises:
            Unavailable: it has no coordinator now, or it is unknown whether it was deleted.
        """

        async def one() -> None:
            node = self._coordinator_of(group_id)
            if node == self._node:
                await self._local.delete(group_id)
            else:
                await self._ask(node, Delete(group_id))

        await _patiently(one, _UNDONE)

    async def serve(self, _: NodeId, body: memoryview) -> Sequence[Chunk]:
        """Handle a request of another node (``PeerService.GROUPS``)."""
        try:
            asked = _asked.decode(body)
        except DECODE_ERRORS as error:
            raise Corrupt(f"malformed request about groups: {error}") from error
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
        """The groups of exactly these partitions: another node lists those it took over."""
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
        raise Corrupt(f"malformed answer about groups: {error}") from error
