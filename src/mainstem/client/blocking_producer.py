"""The producer without asyncio: ``send`` queues a record, its result waits for the offset.

    with BlockingProducer("127.0.0.1:9092") as producer:
        delivery = producer.send("orders", b"first")
        place = delivery.result()

Guarantees are those of ``Producer``. ``send`` does not wait for the network: records are passed to
the loop's thread in the order they were sent, many at a time, and it waits only while more than
``HANDED_BYTES_MAX`` are queued for it. Thread-safe.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from mainstem.client.blocking_cluster import BlockingCluster, inner
from mainstem.client.concurrency.sync_wrapper import SyncWrapper, at_once, waits
from mainstem.client.producer import Delivery, Producer
from mainstem.client.settings import ProducerSettings
from mainstem.client.transactions import TransactionalProducer
from mainstem.client.values import RecordMetadata
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.records.record import Header

__all__ = ["BlockingDelivery", "BlockingProducer", "BlockingTransactionalProducer"]

HANDED_BYTES_MAX: Final = 1024 * 1024
RECORD_BYTES: Final = 100  # memory of a record besides its key and value

Inner = TypeVar("Inner", bound=Producer)


class PendingRecord:
    """A record queued for the producer."""

    __slots__ = ("call", "delivery", "error", "handed_at", "is_observed", "size")

    def __init__(self, call: tuple[Any, ...], size: int) -> None:
        self.call = call
        self.size = size
        self.handed_at = time.monotonic()
        self.delivery: Delivery | None = None
        self.error: BaseException | None = None
        self.is_observed = False


class BlockingDelivery:
    """What ``send`` returns: ``result`` waits for the offset of the record, or its error."""

    __slots__ = ("_handed", "_producer")

    def __init__(self, producer: "SendBuffer[Any]", handed: PendingRecord) -> None:
        self._producer = producer
        self._handed = handed

    @property
    def is_done(self) -> bool:
        """Whether the outcome of the record is known."""
        handed = self._handed
        return handed.error is not None or (handed.delivery is not None and handed.delivery.is_done)

    def result(self, timeout_ms: float | None = None) -> RecordMetadata:
        """Where the record was stored.

        Raises:
            TimeoutError: its outcome is not known in time.
            MainstemError: it could not be stored.
        """
        return self._producer.outcome(self._handed, timeout_ms)


class SendBuffer(SyncWrapper[Inner], Generic[Inner]):
    """Passes records to a producer in the loop's thread, in order."""

    def __init__(self, make: Callable[[], Inner]) -> None:
        super().__init__(make)
        self._space = threading.Condition()
        self._waiting: deque[PendingRecord] = deque()
        self._bytes = 0
        self._pump: asyncio.Task[None] | None = None  # used in the loop only
        self._is_pumping = False
        self._lost: PendingRecord | None = None

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Sequence[Header] = (),
        timestamp_ms: int | None = None,
    ) -> BlockingDelivery:
        """Queues a record; the result has its offset.

        Raises:
            InvalidRequest: the producer is not open.
            Unavailable: the buffer stays full.
        """
        thread, producer = self.parts
        size = RECORD_BYTES + len(value or b"") + len(key or b"")
        handed = PendingRecord((topic, value, key, partition, tuple(headers), timestamp_ms), size)
        with self._space:
            timeout_s = producer.settings.block_timeout_ms / 1000
            if not self._space.wait_for(lambda: self._bytes < HANDED_BYTES_MAX, timeout_s):
                raise Unavailable(
                    ErrorCode.OVERLOADED,
                    f"{self._bytes} bytes have waited for {producer.settings.block_timeout_ms} ms",
                    remedy="send more slowly, or give the producer a larger buffer",
                )
            self._waiting.append(handed)
            self._bytes += size
            wake, self._is_pumping = not self._is_pumping, True
        if wake:
            thread.soon(self._start)
        return BlockingDelivery(self, handed)

    def send_and_wait(self, topic: str, value: bytes | None, **rest: Any) -> RecordMetadata:
        """Sends one record without lingering and returns its offset; arguments as for ``send``."""
        thread, producer = self.parts
        thread.call(self._handed_over())
        return thread.call(producer.send_and_wait(topic, value, **rest))

    @property
    def handed_bytes(self) -> int:
        """The bytes that are queued for the loop's thread."""
        return self._bytes

    def flush(self) -> None:
        """Waits until every record sent so far is delivered or has failed.

        Raises:
            MainstemError: the first failure whose result was not read.
        """
        thread, producer = self.parts
        thread.call(self._handed_over())
        self._report()
        thread.call(producer.flush())

    def outcome(self, handed: PendingRecord, timeout_ms: float | None) -> RecordMetadata:
        """The result of a record; see ``BlockingDelivery.result``."""
        handed.is_observed = True
        thread, _ = self.parts

        async def known() -> RecordMetadata:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                if handed.delivery is None and handed.error is None:
                    await self._handed_over()
                if handed.delivery is None:
                    assert handed.error is not None, (
                        "a record that was passed on has a delivery or an error"
                    )
                    raise handed.error
                return await handed.delivery

        return thread.call(known())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._parts is None:
            return
        try:
            if error is None:
                self._parts[0].call(self._handed_over())
        finally:
            super().__exit__(kind, error, trace)
        if error is None:
            self._report()

    def _start(self) -> None:
        self._pump = asyncio.ensure_future(self._pumped())

    async def _pumped(self) -> None:
        """Passes queued records on until none is left."""
        _, producer = self.parts
        limit_ms = producer.settings.block_timeout_ms
        while True:
            with self._space:
                taken, self._waiting = self._waiting, deque()
                if not taken:
                    self._is_pumping = False
                    return
            failures: dict[str, Unavailable] = {}
            for handed in taken:
                topic = handed.call[0]
                # A record that waited as long as the one before it gets the same outcome at once.
                waited_ms = (time.monotonic() - handed.handed_at) * 1000
                handed.error = failures.get(topic) if waited_ms > limit_ms else None
                if handed.error is None:
                    await _hand(producer, handed)
                if isinstance(handed.error, Unavailable):
                    failures[topic] = handed.error
                if handed.error is not None and (self._lost is None or self._lost.is_observed):
                    self._lost = handed
                with self._space:
                    self._bytes -= handed.size
                    self._space.notify_all()

    async def _handed_over(self) -> None:
        """Waits until the producer has everything sent so far."""
        while self._is_pumping:
            if self._pump is None or self._pump.done():
                await asyncio.sleep(0)  # it is about to start
            else:
                await asyncio.shield(self._pump)

    def _report(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None and lost.error is not None and not lost.is_observed:
            raise lost.error


class BlockingProducer(SendBuffer[Producer]):
    """Produces records without asyncio; ``send`` queues a record and returns at once.

    A context manager; arguments as for ``Producer``.
    """

    def __init__(
        self,
        cluster: BlockingCluster | str | Sequence[str],
        settings: ProducerSettings | None = None,
    ) -> None:
        super().__init__(lambda: Producer(inner(cluster), settings))

    partitions_of = waits(Producer.partitions_of)


class BlockingTransactionalProducer(SendBuffer[TransactionalProducer]):
    """Sends records in transactions; arguments and names as for ``TransactionalProducer``."""

    def __init__(
        self,
        cluster: BlockingCluster | str | Sequence[str],
        transactional_id: str,
        settings: ProducerSettings | None = None,
        *,
        timeout_ms: int = 60_000,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> None:
        super().__init__(
            lambda: TransactionalProducer(
                inner(cluster),
                transactional_id,
                settings,
                timeout_ms=timeout_ms,
                two_phase=two_phase,
                keep_prepared=keep_prepared,
            )
        )

    begin = at_once(TransactionalProducer.begin)
    complete = waits(TransactionalProducer.complete)

    @property
    def prepared(self) -> str | None:
        """The prepared transaction, if there is one."""
        return self.parts[1].prepared

    def prepare(self) -> str:
        """Delivers everything; returns the id by which a later producer can complete it."""
        self._all_handed()
        thread, producer = self.parts
        return thread.call(producer.prepare())

    def commit(self) -> None:
        """Delivers everything and commits."""
        self._all_handed()
        thread, producer = self.parts
        thread.call(producer.commit())

    def abort(self) -> None:
        """Aborts the transaction; its records are never read as committed."""
        thread, producer = self.parts
        thread.call(self._handed_over())
        self._lost = None
        thread.call(producer.abort())

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A block whose records and offsets are committed together; an exception aborts."""
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            if self.parts[1].is_open:
                self.abort()
            raise

    def _all_handed(self) -> None:
        thread, _ = self.parts
        thread.call(self._handed_over())
        self._report()


async def _hand(producer: Producer, handed: PendingRecord) -> None:
    topic, value, key, partition, headers, timestamp_ms = handed.call
    try:
        handed.delivery = await producer.send(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
        )
    except (MainstemError, ValueError, TypeError) as error:
        handed.error = error
