"""Reads and writes states of share partitions at the coordinator of their group.

    writer of a partition ── Read, Write(state) ──▶ coordinator of the group: stored, then answered

On one node both are the same. Guarantees: a state whose write was answered is stored; writes are
idempotent, so that a retry is safe.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.peers.requests_service import PeerRequester, retry_refused
from mainstem.coordination.share.facts import ShareState
from mainstem.coordination.share.group import SharePartitionKey
from mainstem.coordination.share.service import ShareGroupCoordinator
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import NO_NODE, NodeId, TopicId

ASK_TIMEOUT_S: Final = 5.0
WAIT_MAX_S: Final = 5.0
_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOADING,
        ErrorCode.COORDINATOR_UNAVAILABLE,
        ErrorCode.WRITER_UNAVAILABLE,
        ErrorCode.TIMED_OUT,
    }
)


class ReadShareState(msgspec.Struct, frozen=True, array_like=True, tag="Read"):
    """Read the stored state of a partition."""

    group_id: str
    topic: bytes
    partition: int
    leader_epoch: int


class WriteShareState(msgspec.Struct, frozen=True, array_like=True, tag="Write"):
    """Store the state of a partition."""

    group_id: str
    topic: bytes
    partition: int
    state: ShareState


_asked = msgspec.msgpack.Decoder(ReadShareState | WriteShareState)
_answered: msgspec.msgpack.Decoder[ShareState | None] = msgspec.msgpack.Decoder(ShareState | None)
_encode = msgspec.msgpack.Encoder().encode


class ShareStatePersister:
    """Access to the states of all groups, local or at a remote coordinator.

    Args:
        node: this node.
        peers: sends requests to other nodes.
        local: the groups that this node coordinates.
        coordinator_of: returns the coordinator of a group; ``NO_NODE`` if there is none.
    """

    def __init__(
        self,
        node: NodeId,
        peers: PeerRequester,
        local: ShareGroupCoordinator,
        coordinator_of: Callable[[str], NodeId],
    ) -> None:
        self._node = node
        self._peers = peers
        self._local = local
        self._coordinator_of = coordinator_of

    async def read(
        self, group_id: str, place: SharePartitionKey, leader_epoch: int
    ) -> ShareState | None:
        """The stored state of a partition; None if nothing is stored yet."""
        return await self._asked(ReadShareState(group_id, *place, leader_epoch))

    async def write(self, group_id: str, place: SharePartitionKey, state: ShareState) -> None:
        """Store a state; returns once it is committed."""
        await self._asked(WriteShareState(group_id, *place, state))

    async def serve(self, _: NodeId, body: memoryview) -> Sequence[Chunk]:
        """Answer a request of another node (the handler of ``PeerService.SHARES``)."""
        try:
            asked = _asked.decode(body)
        except DECODE_ERRORS as error:
            raise Corrupt(f"invalid share group request: {error}") from error
        return [_encode(await self._here(asked))]

    async def _here(self, asked: ReadShareState | WriteShareState) -> ShareState | None:
        place = (TopicId(asked.topic), asked.partition)
        if isinstance(asked, ReadShareState):
            return await self._local.read(asked.group_id, place, asked.leader_epoch)
        await self._local.write(asked.group_id, place, asked.state)
        return None

    async def _asked(self, asked: ReadShareState | WriteShareState) -> ShareState | None:
        """Send a request to the coordinator; retries while the coordinator moves."""
        return await retry_refused(
            lambda: self._answer(asked), lambda error: error.code in _AGAIN, timeout_s=WAIT_MAX_S
        )

    async def _answer(self, asked: ReadShareState | WriteShareState) -> ShareState | None:
        node = self._coordinator_of(asked.group_id)
        if node == self._node:
            return await self._here(asked)
        if node == NO_NODE:
            raise Unavailable(
                ErrorCode.COORDINATOR_UNAVAILABLE,
                "the group has no coordinator",
                subject=asked.group_id,
            )
        answer = await self._peers.ask(
            node, PeerService.SHARES, [_encode(asked)], timeout_s=ASK_TIMEOUT_S
        )
        return _answered.decode(answer)
