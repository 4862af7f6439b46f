"""The transactional producer: records and offsets of a group are committed together, or not at all.

    async with TransactionalProducer("localhost:9092", "transfer-1") as producer:
        async with producer.transaction():
            await producer.send("accounts", b"...")
            await consumer.commit(through=producer)

A block that ends well is committed, one that fails is aborted. Another producer with the same
transactional id fences this one. Guarantees: a transaction with an undelivered record is not
committed; after an abort the producer can continue; a commit whose response is lost may be repeated
and has one outcome.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final, NamedTuple, Self, TypeVar

from msgspec.structs import replace

from mainstem.client.cluster import Cluster
from mainstem.client.consuming.committed_offsets import OUTSIDER, CommittingMember
from mainstem.client.producer import Delivery, Producer, check_settings
from mainstem.client.producing.outbox import ProducerIdState
from mainstem.client.producing.produce_call import ProduceOptions
from mainstem.client.producing.sender import BatchSender
from mainstem.client.producing.transaction_calls import (
    NOBODY,
    InitializedProducer,
    TransactionRequests,
)
from mainstem.client.settings import ProducerSettings
from mainstem.client.values import CommittedOffset, TopicPartition
from mainstem.model.errors import ErrorCode, Fenced, InvalidRequest
from mainstem.model.records import compression
from mainstem.model.records.columns import EncodedRecords

PRODUCE_UNTIL_VERSION_1: Final = 11
T = TypeVar("T")

ABORTED: Final = InvalidRequest(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted")


class TransactionPhase(Enum):
    """The state of the producer."""

    NEW = "has not started"
    READY = "is between transactions"
    OPEN = "is in a transaction"
    PREPARED = "has prepared its transaction"
    COMMITTING = "does not know whether its commit arrived"
    FENCED = "was replaced by another producer with its transactional id"


class TransactionHandle(NamedTuple):
    """A prepared transaction, in a form that can be stored and passed on."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_version_2: bool = True


async def end_transaction(
    cluster: Cluster, handle: TransactionHandle, *, commit: bool, timeout_ms: int = 120_000
) -> None:
    """Ends a transaction that another process prepared; repeating it has the same outcome.

    Raises:
        Fenced: the transactional id has been taken over since.
        InvalidRequest: the transaction ended the other way, or is unknown.
    """
    calls = TransactionRequests(cluster, handle.transactional_id, timeout_ms=timeout_ms)
    identity = handle.producer_id, handle.epoch
    await calls.end(identity, commit=commit, is_version_2=handle.is_version_2)


class TransactionSession:
    """The producer id and epoch, and the partitions and groups of the transaction."""

    heals = False

    def __init__(self, calls: TransactionRequests, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.identity = NOBODY
        self.is_version_2 = False
        self.is_touched = False
        self._calls = calls
        self._partitions: set[TopicPartition] = set()
        self._groups: set[str] = set()
        self._adding = asyncio.Lock()

    @property
    def produce_version_max(self) -> int | None:
        """Later versions would add partitions on their own."""
        return None if self.is_version_2 else PRODUCE_UNTIL_VERSION_1

    def take(self, identity: tuple[int, int]) -> bool:
        """Sets producer id and epoch of the next transaction; returns whether they changed."""
        is_other = identity != self.identity
        self.identity = identity
        self.is_touched = False
        self._partitions.clear()
        self._groups.clear()
        return is_other

    async def end(self, *, commit: bool) -> bool:
        """Ends the transaction; returns whether producer id or epoch changed."""
        ended = self._calls.end(self.identity, commit=commit, is_version_2=self.is_version_2)
        return self.take(await ended)

    async def first(self) -> ProducerIdState:
        """The producer id and epoch that partitions are written under."""
        return ProducerIdState(*self.identity)

    async def fresh(self) -> ProducerIdState:
        """The same: only the coordinator gives another one, with the next transaction."""
        return ProducerIdState(*self.identity)

    async def joined(self, partitions: Collection[TopicPartition]) -> None:
        """Adds partitions to the transaction if necessary."""
        self.is_touched = True
        if self.is_version_2:
            return
        async with self._adding:
            new = set(partitions) - self._partitions
            if new:
                await self._calls.add_partitions(self.identity, new)
                self._partitions |= new

    async def joined_by(self, group: str) -> None:
        """Adds the offsets of a group to the transaction if necessary."""
        self.is_touched = True
        if self.is_version_2:
            return
        async with self._adding:
            if group not in self._groups:
                await self._calls.add_group(self.identity, group)
                self._groups.add(group)


class _PhaseGuard:
    """The state of the producer, and the calls that it allows."""

    def __init__(self) -> None:
        self.phase = TransactionPhase.NEW

    def expect(self, *phases: TransactionPhase) -> None:
        """Raises in any other phase."""
        if self.phase in phases:
            return
        if self.phase is TransactionPhase.FENCED:
            raise Fenced(ErrorCode.FENCED_PRODUCER, f"the producer {self.phase.value}")
        raise InvalidRequest(ErrorCode.INVALID_TXN_STATE, f"the producer {self.phase.value}")

    async def guarded(self, call: Coroutine[Any, Any, T]) -> T:
        """Awaits a call and notes if it shows that the producer was fenced."""
        try:
            return await call
        except Fenced as error:
            if error.code is ErrorCode.FENCED_PRODUCER:
                self.phase = TransactionPhase.FENCED
            raise


class TransactionalProducer(Producer):
    """Sends records in transactions. An async context manager; leaving it aborts what is open.

    Args:
        cluster: where to send; given an address (or several), the producer owns its cluster.
        transactional_id: a producer that starts later with the same id fences this one.
        settings: how to send; transactions need acks ``all`` and idempotence.
        timeout_ms: after that long the broker aborts an open transaction.
        two_phase: transactions wait for ``complete`` without a time limit; an external system
            tracks what was prepared (KIP-939).
        keep_prepared: take over the transaction that an earlier producer prepared; ``prepared``
            is its id then, and ``complete`` ends it.
    """

    def __init__(
        self,
        cluster: Cluster | str | Sequence[str],
        transactional_id: str,
        settings: ProducerSettings | None = None,
        *,
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> None:
        wanted = replace(settings or ProducerSettings(), idempotent=True)
        super().__init__(cluster, wanted)
        acks, _ = check_settings(wanted)
        self._timeout_ms = timeout_ms
        self._two_phase = two_phase
        self._keep_prepared = keep_prepared
        self._calls = TransactionRequests(
            self._cluster, transactional_id, timeout_ms=wanted.delivery_timeout_ms
        )
        self._session = TransactionSession(self._calls, transactional_id)
        codec = compression.codec_of(wanted.compression)
        options = ProduceOptions(acks, codec, wanted, self._session)
        self._sender = BatchSender(self._cluster, options, identities=self._session)
        self._phases = _PhaseGuard()
        self.prepared: str | None = None

    async def __aenter__(self) -> Self:
        found = await self._init()
        if found.ongoing != NOBODY:
            self._phases.phase = TransactionPhase.PREPARED
            self._session.is_touched = True
            self.prepared = _name(found.ongoing)
        else:
            self._phases.phase = TransactionPhase.READY
        return self

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A block whose records and offsets are committed together; an exception aborts."""
        self.begin()
        try:
            yield self
            await self.commit()
        except BaseException:
            if self.is_open:
                await self.abort()
            raise

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, that is, not yet prepared or ended."""
        return self._phases.phase is TransactionPhase.OPEN

    def begin(self) -> None:
        """Begins a transaction; brokers know it from its first record on."""
        self._phases.expect(TransactionPhase.READY)
        self._sender.losses.reset()
        self._phases.phase = TransactionPhase.OPEN

    async def send(self, topic: str, value: bytes | None, **rest: Any) -> Delivery:
        """Sends a record in the transaction; see ``Producer.send``."""
        self._phases.expect(TransactionPhase.OPEN)
        return await super().send(topic, value, **rest)

    async def send_encoded(self, partition: TopicPartition, records: EncodedRecords) -> None:
        """Sends encoded records in the transaction; see ``Producer.send_encoded``."""
        self._phases.expect(TransactionPhase.OPEN)
        await super().send_encoded(partition, records)

    async def send_offsets(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: CommittingMember = OUTSIDER,
    ) -> None:
        """Makes offsets of a group part of the transaction; see ``Consumer.commit``.

        Raises:
            Fenced: the member is no longer part of the group, or the producer was replaced.
        """
        self._phases.expect(TransactionPhase.OPEN)
        if not offsets:
            return
        session = self._session
        await session.joined_by(group)
        await self._phases.guarded(
            self._calls.commit_offsets(
                session.identity, group, offsets, member, is_version_2=session.is_version_2
            )
        )

    async def prepare(self) -> str:
        """Delivers everything; returns the id by which a later producer can complete it.

        Only ``complete``, ``commit`` and ``abort`` may follow.
        """
        self._phases.expect(TransactionPhase.OPEN)
        await super().flush()
        self._sender.losses.raise_first()
        self._phases.phase = TransactionPhase.PREPARED
        self.prepared = _name(self._session.identity)
        return self.prepared

    @property
    def handle(self) -> TransactionHandle:
        """The handle by which another process can end the transaction: ``end_transaction``."""
        session = self._session
        return TransactionHandle(session.transactional_id, *session.identity, session.is_version_2)

    async def complete(self, prepared: str) -> bool:
        """Commits the prepared transaction if it is the given one, else aborts; returns which."""
        self._phases.expect(TransactionPhase.PREPARED)
        is_it = prepared == self.prepared
        await (self.commit() if is_it else self.abort())
        return is_it

    async def commit(self) -> None:
        """Delivers everything and commits.

        Raises:
            Fenced: another producer took over; nothing was committed.
            Unavailable: the response did not arrive in time; commit again for the outcome.
            MainstemError: a record could not be delivered; abort.
        """
        self._phases.expect(
            TransactionPhase.OPEN, TransactionPhase.PREPARED, TransactionPhase.COMMITTING
        )
        if self._phases.phase is TransactionPhase.OPEN:
            await super().flush()
            self._sender.losses.raise_first()
        if self._session.is_touched:
            self._phases.phase = TransactionPhase.COMMITTING
            try:
                is_other = await self._phases.guarded(self._session.end(commit=True))
            except InvalidRequest:
                # Refused permanently: only an abort is possible.
                self._phases.phase = TransactionPhase.OPEN
                raise
            if is_other:
                self._sender.forget_identities()
        self._phases.phase = TransactionPhase.READY
        self.prepared = None

    async def abort(self) -> None:
        """Aborts the transaction; its records are never read as committed."""
        self._phases.expect(TransactionPhase.OPEN, TransactionPhase.PREPARED)
        await self._sender.drop(ABORTED)
        has_lost = self._sender.losses.first is not None
        self._sender.losses.reset()
        if self._session.is_touched:
            if await self._phases.guarded(self._session.end(commit=False)):
                self._sender.forget_identities()
            if has_lost and not self._session.is_version_2:
                # Which sequence numbers arrived is unknown; a new epoch starts them again.
                await self._init(expected=self._session.identity)
        self._phases.phase = TransactionPhase.READY
        self.prepared = None

    async def close(self, timeout_ms: int | None = None) -> None:
        """Aborts an open transaction, unless it is prepared, and closes."""
        try:
            if self._phases.phase is TransactionPhase.OPEN:
                await self.abort()
        finally:
            await super().close(timeout_ms)

    async def _init(self, expected: tuple[int, int] = NOBODY) -> InitializedProducer:
        found = await self._phases.guarded(
            self._calls.init(
                transaction_timeout_ms=self._timeout_ms,
                expected=expected,
                two_phase=self._two_phase,
                keep_prepared=self._keep_prepared and expected == NOBODY,
            )
        )
        self._session.is_version_2 = found.is_version_2
        self._session.take((found.producer_id, found.epoch))
        self._sender.forget_identities()
        return found


def _name(identity: tuple[int, int]) -> str:
    return f"{identity[0]}:{identity[1]}"
