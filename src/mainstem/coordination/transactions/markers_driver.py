"""Writes the markers of a transaction to all its partitions, with retries.

A marker is written, then its commit is awaited. Failed writes are retried; partitions of deleted
topics need no marker. Markers may be written twice after a crash, which changes nothing: the
transaction of that producer has ended by then.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Protocol

from mainstem.coordination.shards.partitioning import OFFSETS_TOPIC
from mainstem.coordination.transactions.state import Partition, ProducerIdentity
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.streams.producers.transaction_markers import TransactionMarker

_log = logging.getLogger(__name__)

_PAUSE_MIN_S = 0.02
_PAUSE_MAX_S = 1.0
_AT_ONCE = 256
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID})


class TransactionalStream(Protocol):
    """A stream that transactions write to."""

    def write_marker(self, producer_id: int, epoch: int, marker: TransactionMarker) -> int:
        """Write a producer's transaction marker; returns the offset after it."""
        ...

    def when_committed(self, until: int, settled: Callable[[MainstemError | None], None]) -> bool:
        """Whether the records before ``until`` are committed; else ``settled`` is called later."""
        ...


class PendingOffsetStore(Protocol):
    """Committed offsets of groups that are pending in transactions."""

    async def end_transaction(
        self, partition: int, producer: ProducerIdentity, marker: TransactionMarker
    ) -> None:
        """End a transaction that has pending offsets in this partition."""
        ...


class Markers:
    """Writes markers to streams, and through the group coordinator to the offsets topic."""

    def __init__(
        self,
        open_stream: Callable[[str, int], TransactionalStream],
        group_offsets: PendingOffsetStore,
    ) -> None:
        self._open_stream = open_stream
        self._group_offsets = group_offsets

    async def write(
        self, partition: Partition, producer: ProducerIdentity, marker: TransactionMarker
    ) -> None:
        """End a transaction in one partition; returns once the marker is committed."""
        topic, number = partition
        if topic == OFFSETS_TOPIC:
            # The group coordinator has to apply the outcome, not only the stream.
            await self._group_offsets.end_transaction(number, producer, marker)
            return
        stream = self._open_stream(topic, number)
        until = stream.write_marker(*producer, marker)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: MainstemError | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

        if not stream.when_committed(until, settled):
            await future

    async def write_all(
        self, partitions: Iterable[Partition], producer: ProducerIdentity, marker: TransactionMarker
    ) -> None:
        """End a transaction in all its partitions; returns once all markers are committed."""
        left = sorted(partitions)
        pause_s = _PAUSE_MIN_S
        while left:
            failed: list[Partition] = []
            waiting = iter(left)
            while some := list(islice(waiting, _AT_ONCE)):
                failed += await self._write_some(some, producer, marker)
            left = failed
            if left:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def _write_some(
        self, partitions: Sequence[Partition], producer: ProducerIdentity, marker: TransactionMarker
    ) -> list[Partition]:
        """Write each marker once; returns the partitions to retry."""
        results = await asyncio.gather(
            *(self.write(partition, producer, marker) for partition in partitions),
            return_exceptions=True,
        )
        failed = []
        for partition, result in zip(partitions, results, strict=True):
            if result is None:
                continue
            if not isinstance(result, MainstemError):
                raise result
            if result.code is ErrorCode.FENCED_PRODUCER:
                # A newer epoch has written, which is possible only after this transaction ended.
                _log.error(
                    "the marker for %s-%d was fenced by a newer producer epoch: %s",
                    *partition,
                    result,
                )
            elif result.code is ErrorCode.FENCED_COORDINATOR:
                # Another node coordinates the transaction now, and writes the marker itself.
                _log.warning("the marker for %s-%d was fenced: %s", *partition, result)
            elif result.code not in _GONE:
                _log.warning("the marker for %s-%d failed, will retry: %s", *partition, result)
                failed.append(partition)
        return failed
