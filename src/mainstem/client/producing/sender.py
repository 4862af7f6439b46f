"""Sends batches from the outboxes to the leaders of their partitions, and settles them.

Guarantees: at most ``in_flight_max`` requests per node and batches per partition are in flight;
each request has at most one batch per partition; retriable errors are retried, after a metadata
refresh, until the batch expires; a partition whose sequence numbers the broker no longer follows
continues under a new producer id.
"""

import asyncio
from typing import Final

from mainstem.client import errors
from mainstem.client.cluster import Cluster
from mainstem.client.concurrency.background_tasks import TaskSet
from mainstem.client.producing.delivery_failures import DeliveryFailures
from mainstem.client.producing.outbox import PartitionOutbox, ProducerBatch
from mainstem.client.producing.produce_call import ProduceOptions, produce
from mainstem.client.producing.producer_ids import ProducerIdSource
from mainstem.client.settings import ProducerSettings
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.records.columns import EncodedRecords
from mainstem.model.records.record import Record
from mainstem.wire.kafka.messages.produce import PartitionProduceResponse

WATCH_S: Final = 1.0

# The broker lost the sequence; only the error of the first unsettled batch is conclusive.
_SEQUENCE_LOST: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.UNKNOWN_PRODUCER,
        ErrorCode.FENCED_PRODUCER,
    }
)


class BatchSender:
    """The driver behind a producer."""

    def __init__(
        self, cluster: Cluster, options: ProduceOptions, *, identities: ProducerIdSource | None
    ) -> None:
        self.unsettled: dict[ProducerBatch, None] = {}
        self.buffered_bytes = 0
        self._cluster = cluster
        self._options = options
        self._settings = options.settings
        self._retry_pause_s = options.settings.retry_pause_ms / 1000
        self._identities = identities
        self._loop = asyncio.get_running_loop()
        self._tasks = TaskSet()
        self._outboxes = _Outboxes(options.settings, needs_identity=identities is not None)
        self._busy: dict[TopicPartition, PartitionOutbox] = {}
        self._identifying: set[TopicPartition] = set()
        self._requests_of: dict[int, int] = {}
        self._pump_handle: asyncio.Handle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._is_refreshing = False
        self._space = asyncio.Event()
        self.losses = DeliveryFailures()
        self._dropping: MainstemError | None = None
        self._is_closed = False

    def add(
        self, partition: TopicPartition, record: Record, size: int
    ) -> tuple[ProducerBatch, bool]:
        """Adds a record; returns its batch, and whether that batch is now full."""
        outbox = self._outboxes[partition]
        now = self._loop.time()
        batch = outbox.add(record, size, now, now + self._settings.delivery_timeout_ms / 1000)
        self.buffered_bytes += size
        self._busy[partition] = outbox
        is_new = batch not in self.unsettled
        is_full = batch.size_bytes >= self._settings.batch_bytes
        if is_new:
            self.unsettled[batch] = None
        if is_full:
            self._pump_in(0)
        elif is_new:
            self._pump_in(self._settings.linger_ms / 1000)
        return batch, is_full

    def add_encoded(self, partition: TopicPartition, encoded: EncodedRecords) -> ProducerBatch:
        """Adds records that the caller encoded; they are sent as one batch."""
        outbox = self._outboxes[partition]
        now = self._loop.time()
        deadline = now + self._settings.delivery_timeout_ms / 1000
        batch = outbox.add_encoded(encoded, now, deadline)
        self.buffered_bytes += batch.size_bytes
        self._busy[partition] = outbox
        self.unsettled[batch] = None
        self._pump_in(0)
        return batch

    def send_now(self) -> None:
        """Makes every open batch ready."""
        for outbox in self._busy.values():
            outbox.close_open()
        self._pump_in(0)

    async def wait_for_buffer_space(self, size: int) -> None:
        """Waits until a record of this size fits, or until the buffer is empty."""
        self.send_now()
        while self.buffered_bytes and self.buffered_bytes + size > self._settings.buffer_bytes:
            self._space.clear()
            await self._space.wait()

    def give_up(self) -> None:
        """Fails everything that is not delivered."""
        closed = Unavailable(ErrorCode.SHUTTING_DOWN, "the producer was closed before delivery")
        for outbox in self._outboxes.values():
            outbox.drop_all()
        for batch in list(self.unsettled):
            self._settled(batch)
            batch.fail(closed)

    async def drop(self, error: MainstemError) -> None:
        """Fails what is buffered, waits for what is in flight, and retries nothing."""
        self._dropping = error
        try:
            for outbox in self._outboxes.values():
                for batch in outbox.drop_all():
                    self._lose(batch, error)
            for batch in list(self.unsettled):
                await until_done(batch)
        finally:
            self._dropping = None

    def forget_identities(self) -> None:
        """Makes every partition start again under the present producer id."""
        for outbox in self._outboxes.values():
            assert outbox.is_empty, (
                "unsettled batches belong to the producer id they were sent under"
            )
            outbox.identity = None
            outbox.needs_identity = True

    async def close(self) -> None:
        """Cancels every task."""
        self._is_closed = True
        for handle in (self._pump_handle, self._watch):
            if handle is not None:
                handle.cancel()
        await self._tasks.close()
        self._tasks.check()

    # Sending.

    def _pump_in(self, delay_s: float) -> None:
        """Schedules a search for batches to send."""
        if self._is_closed:
            return
        if delay_s > 0:
            self._loop.call_later(delay_s, self._pump_in, 0)
        elif self._pump_handle is None:
            self._pump_handle = self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_handle = None
        if self._watch is not None:
            self._watch.cancel()
        if self._is_closed:
            return
        now = self._loop.time()
        for partition, outbox in list(self._busy.items()):
            for batch in outbox.expire(now):
                self._lose(batch, _late(batch))
            if outbox.is_empty:
                del self._busy[partition]
            elif outbox.can_take_producer_id(now) and partition not in self._identifying:
                self._identifying.add(partition)
                self._tasks.spawn(self._identify(outbox))
        while self._send_round(now):
            pass
        # Batches expire even without an event.
        self._watch = self._loop.call_later(WATCH_S, self._pump) if self.unsettled else None

    def _send_round(self, now: float) -> bool:
        """Starts at most one request per node; returns whether there may be more to send."""
        groups: dict[int, list[ProducerBatch]] = {}
        sizes: dict[int, int] = {}
        for partition, outbox in list(self._busy.items()):
            batch = outbox.next_batch(now, self._settings.linger_ms / 1000)
            if batch is None:
                continue
            node = _leader(self._cluster, partition)
            if node is None:
                self._look_at_cluster()
                continue
            if self._requests_of.get(node, 0) >= self._settings.in_flight_max:
                continue
            size = sizes.get(node, 0) + batch.size_bytes
            if node in groups and size > self._settings.request_bytes_max:
                continue
            sizes[node] = size
            groups.setdefault(node, []).append(outbox.send_next())
            # Moved to the end, so that partitions take turns.
            self._busy[partition] = self._busy.pop(partition)
        for node, batches in groups.items():
            self._requests_of[node] = self._requests_of.get(node, 0) + 1
            self._tasks.spawn(self._deliver(node, batches))
        return bool(groups)

    async def _deliver(self, node: int, batches: list[ProducerBatch]) -> None:
        try:
            answers = await produce(self._cluster, node, batches, self._options)
        except MainstemError as error:
            for batch in batches:
                self._failed(batch, error)
        else:
            for batch, answer in zip(batches, answers, strict=True):
                self._answered(batch, answer)
        finally:
            self._requests_of[node] -= 1
            self._pump_in(0)

    # Settling.

    def _answered(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> None:
        if batch.is_done:
            return
        is_duplicate = answer.error_code == errors.DUPLICATE_SEQUENCE
        if answer.error_code and not is_duplicate:
            message = answer.error_message
            subject = str(batch.partition)
            self._failed(batch, errors.error_of(answer.error_code, message, subject=subject))
            return
        self._outboxes[batch.partition].succeeded(batch)
        self._settled(batch)
        # For a duplicate, an earlier attempt was stored, but its offset is unknown.
        batch.settle(-1 if is_duplicate else answer.base_offset, answer.log_append_time_ms)

    def _failed(self, batch: ProducerBatch, error: MainstemError) -> None:
        if batch.is_done:
            return
        outbox = self._outboxes[batch.partition]
        now = self._loop.time()
        if error.code is ErrorCode.RECORD_TOO_LARGE and batch.record_count > 1:
            # Its records may each be small enough for the topic.
            self._settled(batch)
            parts = batch.split()
            for part in parts:
                self.unsettled[part] = None
                self.buffered_bytes += part.size_bytes
            outbox.replace(batch, parts)
            self._pump_in(0)
            return
        if self._dropping is not None:
            outbox.landed(batch)
            self._lose(batch, self._dropping)
            return
        heals = self._identities is not None and self._identities.heals
        lost_sequence = heals and error.code in _SEQUENCE_LOST
        if now >= batch.deadline or not (lost_sequence or errors.may_retry(error)):
            outbox.landed(batch)
            self._lose(batch, error)
            return
        if lost_sequence and not outbox.has_earlier(batch):
            outbox.needs_identity = True
        outbox.schedule_retry(batch, now + self._retry_pause_s)
        self._pump_in(self._retry_pause_s)
        if not lost_sequence:
            self._look_at_cluster()

    def _lose(self, batch: ProducerBatch, error: MainstemError) -> None:
        self._settled(batch)
        batch.fail(error)
        self.losses.note(batch, error)

    def _settled(self, batch: ProducerBatch) -> None:
        del self.unsettled[batch]
        self.buffered_bytes -= batch.size_bytes
        self._space.set()

    # Metadata and producer ids.

    def _look_at_cluster(self) -> None:
        if not self._is_refreshing:
            self._is_refreshing = True
            self._tasks.spawn(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh()
            for topic in {partition.topic for partition in self._busy}:
                await self._cluster.topic(topic)
        except MainstemError as error:
            if not errors.may_retry(error):
                # The topic that the error names cannot be written to at all.
                for partition, outbox in self._busy.items():
                    if partition.topic == error.subject:
                        for batch in outbox.drop_all():
                            self._lose(batch, error)
            await asyncio.sleep(self._retry_pause_s)
        finally:
            self._is_refreshing = False
        self._pump_in(0)

    async def _identify(self, outbox: PartitionOutbox) -> None:
        """Gets a producer id for a partition that has none, or whose id is unusable."""
        assert self._identities is not None, "only idempotent producers have ids"
        try:
            is_first = outbox.identity is None
            identity = await (self._identities.first() if is_first else self._identities.fresh())
        except MainstemError as error:
            if not errors.may_retry(error):
                for batch in outbox.drop_all():
                    self._lose(batch, error)
            outbox.not_before = self._loop.time() + self._retry_pause_s
            self._pump_in(self._retry_pause_s)
        else:
            outbox.renew_identity(identity)
            self._pump_in(0)
        finally:
            self._identifying.discard(outbox.partition)


class _Outboxes(dict[TopicPartition, PartitionOutbox]):
    """The outboxes by partition, created on first access."""

    def __init__(self, settings: ProducerSettings, *, needs_identity: bool) -> None:
        super().__init__()
        self._settings = settings
        self._needs_identity = needs_identity

    def __missing__(self, partition: TopicPartition) -> PartitionOutbox:
        outbox = self[partition] = PartitionOutbox(
            partition,
            batch_bytes=self._settings.batch_bytes,
            in_flight_max=self._settings.in_flight_max,
        )
        outbox.needs_identity = self._needs_identity
        return outbox


async def until_done(batch: ProducerBatch) -> None:
    """Waits until a batch is settled, without cancelling it when the waiter is cancelled."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    batch.on_done(wake)
    await waiter


def _leader(cluster: Cluster, partition: TopicPartition) -> int | None:
    """The leader of a partition, as far as is known."""
    info = cluster.known_topic(partition.topic)
    found = None if info is None else info.partitions.get(partition.partition)
    return None if found is None or found.leader < 0 else found.leader


def _late(batch: ProducerBatch) -> MainstemError:
    return Unavailable(
        ErrorCode.TIMED_OUT,
        f"{batch.record_count} records could not be delivered in time",
        subject=str(batch.partition),
        remedy="check that the cluster is reachable, or allow more time",
    )
