"""The transactional producer: records and offsets of a group that count together, or not at all.

    async with TransactionalProducer("localhost:9092", "transfer-1") as producer:
        async with producer.transaction():
            await producer.send("accounts", b"...")
            await consumer.commit(through=producer)

A block that ends well is committed, one that fails is aborted. Another producer with the same
transactional id fences this one. Promises: nothing is committed of which a record could not be
delivered; after an abort the producer goes on; a commit whose answer is lost may be asked for again
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
from mainstem.client.producing.sender import Sender
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
    """Where the producer stands."""

    NEW = "has not begun"
    READY = "is between transactions"
    OPEN = "is in a transaction"
    PREPARED = "has prepared its transaction"
    COMMITTING = "does not know whether its commit arrived"
    FENCED = "was replaced by another producer with its transactional id"


class TransactionHandle(NamedTuple):
    """A prepared transaction, as it can be written down and handed on."""

    transactional_id: str
    producer_id: int
    epoch: int
    is_version_2: bool = True


async def end_transaction(
    cluster: Cluster, handle: TransactionHandle, *, commit: bool, timeout_ms: int = 120_000
) -> None:
    """Ends a transaction that another process prepared; asking again has the same outcome.

    Raises:
        Fenced: the transactional id has been taken over since.
        InvalidRequest: the transaction ended the other way, or nobody knows it.
    """
    calls = TransactionRequests(cluster, handle.transactional_id, timeout_ms=timeout_ms)
    identity = handle.producer_id, handle.epoch
    await calls.end(identity, commit=commit, is_version_2=handle.is_version_2)


class TransactionSession:
    """The identity of the producer and what takes part in its transaction."""

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
        """The next transaction runs under this identity; whether it is another one."""
        is_other = identity != self.identity
        self.identity = identity
        self.is_touched = False
        self._partitions.clear()
        self._groups.clear()
        return is_other

    async def end(self, *, commit: bool) -> bool:
        """Ends the transaction; whether the next one runs under another identity."""
        ended = self._calls.end(self.identity, commit=commit, is_version_2=self.is_version_2)
        return self.take(await ended)

    async def first(self) -> ProducerIdState:
        """What partitions are written under."""
        return ProducerIdState(*self.identity)

    async def fresh(self) -> ProducerIdState:
        """The same: only the coordinator gives another one, with the next transaction."""
        return ProducerIdState(*self.identity)

    async def joined(self, partitions: Collection[TopicPartition]) -> None:
        """Makes sure that partitions take part."""
        self.is_touched = True
        if self.is_version_2:
            return
        async with self._adding:
            new = set(partitions) - self._partitions
            if new:
                await self._calls.add_partitions(self.identity, new)
                self._partitions |= new

    async def joined_by(self, group: str) -> None:
        """Makes sure that positions of a group take part."""
        self.is_touched = True
        if self.is_version_2:
            return
        async with self._adding:
            if group not in self._groups:
                await self._calls.add_group(self.identity, group)
                self._groups.add(group)


class _PhaseGuard:
    """Where the producer stands, and what it may do there."""

    def __init__(self) -> None:
        self.phase = TransactionPhase.NEW

    def expect(self, *phases: TransactionPhase) -> None:
        """Refuses in any other phase."""
        if self.phase in phases:
            return
        if self.phase is TransactionPhase.FENCED:
            raise Fenced(ErrorCode.FENCED_PRODUCER, f"the producer {self.phase.value}")
        raise InvalidRequest(ErrorCode.INVALID_TXN_STATE, f"the producer {self.phase.value}")

    async def guarded(self, call: Coroutine[Any, Any, T]) -> T:
        """A call after which the producer may have to learn that it was replaced."""
        try:
            return await call
        except Fenced as error:
            if error.code is ErrorCode.FENCED_PRODUCER:
                self.phase = TransactionPhase.FENCED
            raise


class TransactionalProducer(Producer):
    """Sends records in transactions. An async context manager; leaving it aborts what is open.

    Args:
        cluster: where to send; an address (or several) makes the producer own its cluster.
        transactional_id: whoever begins with the same id later fences this producer.
        settings: how to send; transactions need acks ``all`` and idempotence.
        timeout_ms: after that long the broker aborts an open transaction.
        two_phase: transactions wait for ``complete`` without a time limit; somebody else keeps
            book of what was prepared (KIP-939).
        keep_prepared: take over the transaction that an earlier incarnation prepared; ``prepared``
            names it then, and ``complete`` ends it.
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
        self._sender = Sender(self._cluster, options, identities=self._session)
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
        """A block whose records and offsets count together; an exception aborts."""
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
        """Whether a transaction has begun and is not yet prepared or ended."""
        return self._phases.phase is TransactionPhase.OPEN

    def begin(self) -> None:
        """Begins a transaction; brokers learn of it by its first record."""
        self._phases.expect(TransactionPhase.READY)
        self._sender.losses.reset()
        self._phases.phase = TransactionPhase.OPEN

    async def send(self, topic: str, value: bytes | None, **rest: Any) -> Delivery:
        """Takes a record into the transaction; see ``Producer.send``."""
        self._phases.expect(TransactionPhase.OPEN)
        return await super().send(topic, value, **rest)

    async def send_encoded(self, partition: TopicPartition, records: EncodedRecords) -> None:
        """Takes encoded records into the transaction; see ``Producer.send_encoded``."""
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
        """Delivers everything; the name by which a later incarnation can complete it.

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
        """What somebody else needs to end the transaction; see ``end_transaction``."""
        session = self._session
        return TransactionHandle(session.transactional_id, *session.identity, session.is_version_2)

    async def complete(self, prepared: str) -> bool:
        """Commits the prepared transaction if it is the one named, else aborts it; which it was."""
        self._phases.expect(TransactionPhase.PREPARED)
        is_it = prepared == self.prepared
        await (self.commit() if is_it else self.abort())
        return is_it

    async def commit(self) -> None:
        """Delivers everything and lets it count.

        Raises:
            Fenced: another producer took over; nothing was committed.
            Unavailable: the answer did not come in time; commit again to learn the outcome.
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
                # Refused for good: nothing is left but to abort.
                self._phases.phase = TransactionPhase.OPEN
                raise
            if is_other:
                self._sender.forget_identities()
        self._phases.phase = TransactionPhase.READY
        self.prepared = None

    async def abort(self) -> None:
        """Gives the transaction up; what was written of it is never read as committed."""
        self._phases.expect(TransactionPhase.OPEN, TransactionPhase.PREPARED)
        await self._sender.drop(ABORTED)
        has_lost = self._sender.losses.first is not None
        self._sender.losses.reset()
        if self._session.is_touched:
            if await self._phases.guarded(self._session.end(commit=False)):
                self._sender.forget_identities()
            if has_lost and not self._session.is_version_2:
                # Which sequence numbers arrived is unknown; a new epoch begins them again.
                await self._init(expected=self._session.identity)
        self._phases.phase = TransactionPhase.READY
        self.prepared = None

    async def close(self, timeout_ms: int | None = None) -> None:
        """Aborts what is open, unless it is prepared, and ends."""
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
