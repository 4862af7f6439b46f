"""Administration of transactions: which are open, since when, where, and aborting one that hangs.

A transaction hangs if a partition has records of it and its coordinator does not know it: it would
never end, and readers of committed records stop before it.
"""

import asyncio
from collections.abc import Collection, Sequence

from msgspec import Struct

from mainstem.client import errors
from mainstem.client.cluster import Cluster, CoordinatorKey
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from mainstem.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from mainstem.wire.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from mainstem.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_OVER = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class TransactionListing(Struct, frozen=True):
    """One line of a list of transactions."""

    id: str
    state: str
    producer_id: int


class TransactionInfo(Struct, frozen=True):
    """One transactional id in full; ``start_ms`` is -1 where no transaction is open."""

    id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


class ProducerInfo(Struct, frozen=True):
    """A producer of a partition; ``transaction_start`` is -1 without an open transaction."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int


class TransactionAdmin:
    """Administers transactions; reached through ``Admin.transactions``."""

    def __init__(self, cluster: Cluster, *, timeout_ms: int = 60_000) -> None:
        self._cluster = cluster
        self._timeout_ms = timeout_ms

    async def list_all(
        self, states: Collection[str] = (), *, longer_than_ms: int = -1
    ) -> list[TransactionListing]:
        """The transactional ids of all nodes, in some or all states, by name.

        ``longer_than_ms`` leaves only transactions that have been open for longer.
        """

        async def attempt() -> list[TransactionListing]:
            if not self._cluster.info.nodes:
                await self._cluster.refresh()
            answers = await asyncio.gather(
                *(
                    self._cluster.link(node.id).call(
                        ListTransactionsRequest(
                            state_filters=list(states), duration_filter=longer_than_ms
                        )
                    )
                    for node in self._cluster.info.nodes
                )
            )
            return sorted((line for each in answers for line in _lines(each)), key=_id)

        return await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms)

    async def describe(self, transactional_id: str) -> TransactionInfo:
        """One transactional id.

        Raises:
            InvalidRequest: it is unknown.
        """
        key = CoordinatorKey.transaction(transactional_id)

        async def attempt() -> TransactionInfo:
            link = await self._cluster.coordinator(key)
            response: DescribeTransactionsResponse = await link.call(
                DescribeTransactionsRequest([transactional_id])
            )
            [found] = response.transaction_states
            errors.check(found.error_code, subject=transactional_id)
            return TransactionInfo(
                found.transactional_id,
                found.transaction_state,
                found.producer_id,
                found.producer_epoch,
                found.transaction_timeout_ms,
                -1 if found.transaction_state in _OVER else found.transaction_start_time_ms,
                tuple(
                    TopicPartition(topic.topic, partition)
                    for topic in found.topics
                    for partition in topic.partitions
                ),
            )

        return await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms, group=key)

    async def producers(self, partition: TopicPartition) -> list[ProducerInfo]:
        """The recent producers of a partition, and their open transactions."""

        async def attempt() -> list[ProducerInfo]:
            link, _ = await self._cluster.leader(*partition)
            response: DescribeProducersResponse = await link.call(
                DescribeProducersRequest([TopicRequest(partition.topic, [partition.partition])])
            )
            [answer] = response.topics[0].partitions
            errors.check(answer.error_code, answer.error_message, subject=str(partition))
            return [_producer(each) for each in answer.active_producers]

        return await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms)

    async def abort_hanging(self, partition: TopicPartition, start_offset: int) -> ProducerInfo:
        """Aborts the transaction that starts at an offset of a partition; returns its producer.

        Raises:
            InvalidRequest: no transaction starts there, or its coordinator will end it.
        """
        found = [
            each
            for each in await self.producers(partition)
            if each.transaction_start == start_offset >= 0
        ]
        if not found:
            raise InvalidRequest(
                ErrorCode.INVALID_TXN_STATE,
                f"no open transaction starts at offset {start_offset}",
                subject=str(partition),
            )
        [hanging] = found
        marker = WritableTxnMarker(
            producer_id=hanging.producer_id,
            producer_epoch=hanging.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(partition.topic, [partition.partition])],
            coordinator_epoch=max(hanging.coordinator_epoch, 0),
        )
        link, _ = await self._cluster.leader(*partition)
        response: WriteTxnMarkersResponse = await link.call(WriteTxnMarkersRequest([marker]))
        code = response.markers[0].topics[0].partitions[0].error_code
        errors.check(code, subject=str(partition))
        return hanging


def _lines(response: ListTransactionsResponse) -> Sequence[TransactionListing]:
    errors.check(response.error_code)
    return [
        TransactionListing(each.transactional_id, each.transaction_state, each.producer_id)
        for each in response.transaction_states
    ]


def _id(line: TransactionListing) -> str:
    return line.id


def _producer(found: ProducerState) -> ProducerInfo:
    return ProducerInfo(
        found.producer_id,
        found.producer_epoch,
        found.last_sequence,
        found.last_timestamp,
        found.coordinator_epoch,
        found.current_txn_start_offset,
    )
