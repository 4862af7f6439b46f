"""The consumer without asyncio: the same names, and every call waits.

    with BlockingConsumer("127.0.0.1:9092", "billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            ...

Heartbeats and fetches continue in the loop's thread while the program works on a record; fetched
records are returned without a thread switch. Guarantees are those of ``Consumer``. One thread at a
time may read; any thread may query offsets and positions.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mainstem.client.blocking_cluster import BlockingCluster, inner
from mainstem.client.blocking_producer import BlockingTransactionalProducer
from mainstem.client.concurrency.sync_wrapper import SyncWrapper, at_once, waits
from mainstem.client.consumer import Consumer, OnChange
from mainstem.client.settings import ConsumerSettings
from mainstem.client.values import CommittedOffset, ConsumerRecord, TopicPartition

__all__ = ["BlockingConsumer", "ConsumerSettings"]

BlockingRebalanceCallback = Callable[[list[TopicPartition]], None]


class BlockingConsumer(SyncWrapper[Consumer]):
    """Consumes records without asyncio; every call blocks.

    A context manager and an iterator; arguments as for ``Consumer``.
    """

    def __init__(
        self,
        cluster: BlockingCluster | str | Sequence[str],
        group: str | None = None,
        settings: ConsumerSettings | None = None,
    ) -> None:
        super().__init__(lambda: Consumer(inner(cluster), group, settings))

    assign = at_once(Consumer.assign)
    seek = at_once(Consumer.seek)
    pause = at_once(Consumer.pause)
    poll = waits(Consumer.poll)
    seek_to_time = waits(Consumer.seek_to_time)
    position = waits(Consumer.position)
    offsets = waits(Consumer.offsets)
    committed = waits(Consumer.committed)

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assigned: BlockingRebalanceCallback | None = None,
        on_revoked: BlockingRebalanceCallback | None = None,
    ) -> None:
        """Reads these topics together with the other members of the group, from ``poll`` on.

        The callbacks run in a thread of their own and may call this consumer.
        """
        thread, consumer = self.parts
        wanted = tuple(topics)
        thread.run(
            lambda: consumer.subscribe(
                wanted, on_assigned=_in_thread(on_assigned), on_revoked=_in_thread(on_revoked)
            )
        )

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read now."""
        thread, consumer = self.parts
        return thread.run(lambda: consumer.assignment)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self

    def __next__(self) -> ConsumerRecord:
        """The next record; waits for it as long as it takes."""
        thread, consumer = self.parts
        record = consumer.progress.give_next()
        return thread.call(consumer.__anext__()) if record is None else record

    def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset] | None = None,
        *,
        through: BlockingTransactionalProducer | None = None,
    ) -> None:
        """Commits the given offsets, or those after every record that was returned.

        ``through`` a producer they become part of its transaction and take effect with its commit.
        """
        thread, consumer = self.parts
        sink = None if through is None else through.parts[1]
        thread.call(consumer.commit(offsets, through=sink))


def _in_thread(callback: BlockingRebalanceCallback | None) -> OnChange | None:
    if callback is None:
        return None

    async def notify(partitions: list[TopicPartition]) -> None:
        await asyncio.to_thread(callback, partitions)

    return notify
