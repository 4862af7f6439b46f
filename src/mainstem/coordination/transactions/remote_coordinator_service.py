"""Transactions that span several nodes: markers and verification requests between them.

    writer of a partition                        coordinator of the transaction
    guard set ─ Add(partitions) ───────────────▶ in the transaction, committed
    guard still whole? write ◀───────────────────
    guard broken, marker written ◀── Mark(outcome) ── decided and committed

A transaction may end between the coordinator's answer and the write that it allows. The marker
then breaks the guard, and the write is refused: no record ever follows the marker of its own
transaction.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import msgspec

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.cluster.peers.requests_service import PeerRequester, retry_refused
from mainstem.coordination.shards.persistence_driver import as_coordinator_error
from mainstem.coordination.transactions.markers_driver import (
    Markers,
    PendingOffsetStore,
    TransactionalStream,
)
from mainstem.coordination.transactions.state import Partition, ProducerIdentity
from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.ids import NO_NODE, NodeId
from mainstem.streams.producers.transaction_markers import TransactionMarker

ASK_TIMEOUT_S: Final = 5.0
WAIT_MAX_S: Final = 3.0
_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOADING,
        ErrorCode.COORDINATOR_UNAVAILABLE,
        ErrorCode.WRITER_UNAVAILABLE,
    }
)


class Mark(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """End a transaction in one partition."""

    partition: Partition
    producer: ProducerIdentity
    marker: TransactionMarker


class Add(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Add partitions to a transaction, or verify that they are in it."""

    transactional_id: str
    producer: ProducerIdentity
    partitions: tuple[Partition, ...]
    verify_only: bool


_asked = msgspec.msgpack.Decoder(Mark | Add)
_codes = msgspec.msgpack.Decoder(list[str | None])
_encode = msgspec.msgpack.Encoder().encode


class PartitionVerification:
    """A verification in progress; ``is_whole`` until a marker for it arrives."""

    def __init__(self, partitions: Sequence[Partition], producer_id: int) -> None:
        self.partitions = frozenset(partitions)
        self.producer_id = producer_id
        self.is_whole = True


class PendingVerifications:
    """The verifications in progress on this node."""

    def __init__(self) -> None:
        self._held: set[PartitionVerification] = set()

    @contextmanager
    def held(
        self, partitions: Sequence[Partition], producer_id: int
    ) -> Iterator[PartitionVerification]:
        """Hold a guard while the block runs."""
        guard = PartitionVerification(partitions, producer_id)
        self._held.add(guard)
        try:
            yield guard
        finally:
            self._held.discard(guard)

    def marked(self, partition: Partition, producer_id: int) -> None:
        """Break the guards of a transaction that ends in a partition."""
        for guard in self._held:
            if guard.producer_id == producer_id and partition in guard.partitions:
                guard.is_whole = False


class ClusterMarkers(Markers):
    """Writes markers to the node that writes a partition.

    Args:
        open_stream: returns a stream that this node writes.
        group_offsets: the offsets of groups that this node coordinates.
        node: this node.
        peers: sends requests to other nodes.
        writer_of: returns the writer of a partition; raises for an unknown partition.
    """

    def __init__(
        self,
        open_stream: Callable[[str, int], TransactionalStream],
        group_offsets: PendingOffsetStore,
        *,
        node: NodeId,
        peers: PeerRequester,
        writer_of: Callable[[str, int], NodeId],
    ) -> None:
        super().__init__(open_stream, group_offsets)
        self.guards = PendingVerifications()
        self._node = node
        self._peers = peers
        self._writer_of = writer_of

    async def write(
        self, partition: Partition, producer: ProducerIdentity, marker: TransactionMarker
    ) -> None:
        """End a transaction in one partition; returns once the marker is committed."""
        writer = self._writer_of(*partition)
        if writer == self._node:
            await self.write_here(partition, producer, marker)
            return
        if writer == NO_NODE:
            raise Unavailable(
                ErrorCode.WRITER_UNAVAILABLE, "the partition has no writer", subject=str(partition)
            )
        question = _encode(Mark(partition, producer, marker))
        await self._peers.ask(writer, PeerService.MARKERS, [question], timeout_s=ASK_TIMEOUT_S)

    async def write_here(
        self, partition: Partition, producer: ProducerIdentity, marker: TransactionMarker
    ) -> None:
        """End a transaction in one partition that this node writes."""
        self.guards.marked(partition, producer.producer_id)
        await super().write(partition, producer, marker)


class LocalTransactions(Protocol):
    """The transactions that this node coordinates."""

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[Partition],
        *,
        verify_only: bool,
        forward: bool,
    ) -> Sequence[ErrorCode | None]:
        """Add partitions to the ongoing transaction, or only verify that they are in it."""
        ...


class RemoteCoordinator:
    """Sends requests to coordinators on other nodes, and serves theirs.

    Args:
        node: this node.
        peers: sends requests to other nodes.
        markers: writes markers to partitions.
        coordinator_of: returns the coordinator of a transactional id; ``NO_NODE`` if none.
        local: the transactions that this node coordinates.
    """

    def __init__(
        self,
        node: NodeId,
        peers: PeerRequester,
        markers: ClusterMarkers,
        coordinator_of: Callable[[str], NodeId],
        local: LocalTransactions,
    ) -> None:
        self._node = node
        self._peers = peers
        self._markers = markers
        self._coordinator_of = coordinator_of
        self._local = local

    def is_here(self, transactional_id: str) -> bool:
        """Whether this node coordinates an id."""
        return self._coordinator_of(transactional_id) == self._node

    async def add(self, asked: Add) -> Sequence[ErrorCode | None]:
        """The coordinator's answer; it is valid until the caller awaits something else.

        Raises:
            MainstemError: no coordinator was found in time, or the coordinator's error.
        """
        with self._markers.guards.held(asked.partitions, asked.producer.producer_id) as guard:
            try:
                answers = await retry_refused(
                    lambda: self._answer(asked),
                    lambda error: error.code in _AGAIN,
                    timeout_s=WAIT_MAX_S,
                )
            except MainstemError as error:
                # The client cannot use the reason why the coordinator is unavailable.
                raise as_coordinator_error(error) from error
            ended = [ErrorCode.INVALID_TXN_STATE] * len(answers)
            return answers if guard.is_whole else ended

    async def _answer(self, asked: Add) -> Sequence[ErrorCode | None]:
        coordinator = self._coordinator_of(asked.transactional_id)
        if coordinator == self._node:
            return await self._add_here(asked)
        if coordinator == NO_NODE:
            raise Unavailable(ErrorCode.COORDINATOR_UNAVAILABLE, subject=asked.transactional_id)
        answer = await self._peers.ask(
            coordinator, PeerService.MARKERS, [_encode(asked)], timeout_s=ASK_TIMEOUT_S
        )
        try:
            return [None if c is None else ErrorCode[c] for c in _codes.decode(answer)]
        except (*DECODE_ERRORS, KeyError) as error:
            raise Corrupt(f"invalid answer of a coordinator: {error}") from error

    async def _add_here(self, asked: Add) -> Sequence[ErrorCode | None]:
        return await self._local.add_partitions(
            asked.transactional_id,
            *asked.producer,
            asked.partitions,
            verify_only=asked.verify_only,
            forward=False,
        )

    async def serve(self, _: NodeId, body: memoryview) -> Sequence[Chunk]:
        """Answer a request of another node (the handler of ``PeerService.MARKERS``)."""
        try:
            asked = _asked.decode(body)
        except DECODE_ERRORS as error:
            raise Corrupt(f"invalid transaction request: {error}") from error
        if isinstance(asked, Mark):
            await self._markers.write_here(asked.partition, asked.producer, asked.marker)
            return ()
        codes = await self._add_here(asked)
        return [_encode([None if code is None else code.name for code in codes])]
