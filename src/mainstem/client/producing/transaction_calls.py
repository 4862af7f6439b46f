"""The requests of a transactional producer to its coordinators: producer id, participants, end.

Two flows: with transaction version 2 (KIP-890) partitions and groups are added by being written to,
and the end of each transaction returns the next epoch; with older brokers they are added first.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeVar

from mainstem.client import errors
from mainstem.client.cluster import Cluster, CoordinatorKey
from mainstem.client.connection import Connection
from mainstem.client.consuming.committed_offsets import CommittingMember
from mainstem.client.values import CommittedOffset, TopicPartition
from mainstem.wire.kafka.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from mainstem.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from mainstem.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from mainstem.wire.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from mainstem.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

FEATURE: Final = "transaction.version"
FEATURE_LEVEL: Final = 2
ADD_UNTIL_VERSION: Final = 3  # later ones are for brokers
TWO_PHASE_SINCE_VERSION: Final = 6
END_UNTIL_VERSION_1: Final = 4
COMMIT_UNTIL_VERSION_1: Final = 4
NOBODY: Final = (-1, -1)

T = TypeVar("T")


class InitializedProducer(NamedTuple):
    """Producer id and epoch; ``ongoing``: those of the transaction that was kept, if any."""

    producer_id: int
    epoch: int
    ongoing: tuple[int, int] = NOBODY
    is_version_2: bool = False


class TransactionRequests:
    """Sends the requests of one transactional id; repeats them on retriable errors."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._key = CoordinatorKey.transaction(transactional_id)

    async def init(
        self,
        *,
        transaction_timeout_ms: int,
        expected: tuple[int, int] = NOBODY,
        two_phase: bool = False,
        keep_prepared: bool = False,
    ) -> InitializedProducer:
        """Gets a producer id and epoch; an earlier producer of the transactional id is fenced."""

        async def attempt() -> InitializedProducer:
            connection = await self._coordinator()
            # Only a broker that supports these fields may receive them.
            least = TWO_PHASE_SINCE_VERSION if two_phase or keep_prepared else 0
            response: InitProducerIdResponse = await connection.call(
                InitProducerIdRequest(
                    transactional_id=self._id,
                    transaction_timeout_ms=transaction_timeout_ms,
                    producer_id=expected[0],
                    producer_epoch=expected[1],
                    enable2_pc=two_phase,
                    keep_prepared_txn=keep_prepared,
                ),
                version=connection.version_of("InitProducerId", version_min=least),
            )
            errors.check(response.error_code, subject=self._id)
            ongoing = (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
            level = connection.features.get(FEATURE, 0)
            return InitializedProducer(
                response.producer_id, response.producer_epoch, ongoing, level >= FEATURE_LEVEL
            )

        return await self._retrying(attempt)

    async def add_partitions(
        self, producer: tuple[int, int], partitions: Collection[TopicPartition]
    ) -> None:
        """Adds partitions to the transaction, for older brokers."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for name, partition in sorted(partitions):
            topics.setdefault(name, AddPartitionsToTxnTopic(name=name, partitions=[]))
            topics[name].partitions.append(partition)

        async def attempt() -> None:
            connection = await self._coordinator()
            response: AddPartitionsToTxnResponse = await connection.call(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self._id,
                    v3_and_below_producer_id=producer[0],
                    v3_and_below_producer_epoch=producer[1],
                    v3_and_below_topics=list(topics.values()),
                ),
                version=connection.version_of("AddPartitionsToTxn", ADD_UNTIL_VERSION),
            )
            for topic in response.results_by_topic_v3_and_below:
                for answer in topic.results_by_partition:
                    errors.check(
                        answer.partition_error_code,
                        subject=f"{topic.name}-{answer.partition_index}",
                    )

        await self._retrying(attempt)

    async def add_group(self, producer: tuple[int, int], group: str) -> None:
        """Adds the offsets of a group to the transaction, for older brokers."""

        async def attempt() -> None:
            connection = await self._coordinator()
            response: AddOffsetsToTxnResponse = await connection.call(
                AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    group_id=group,
                )
            )
            errors.check(response.error_code, subject=self._id)

        await self._retrying(attempt)

    async def commit_offsets(
        self,
        producer: tuple[int, int],
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member: CommittingMember,
        *,
        is_version_2: bool,
    ) -> None:
        """Sends offsets to the group's coordinator; they take effect with the commit."""
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (name, partition), committed in offsets.items():
            topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name, partitions=[]))
            topic.partitions.append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            topics=list(topics.values()),
        )

        async def attempt() -> None:
            link = await self._cluster.coordinator(group)
            connection = await link.connection()
            response: TxnOffsetCommitResponse = await connection.call(
                request,
                version=connection.version_of(
                    "TxnOffsetCommit", None if is_version_2 else COMMIT_UNTIL_VERSION_1
                ),
            )
            for topic in response.topics:
                for answer in topic.partitions:
                    errors.check(
                        answer.error_code, subject=f"{topic.name}-{answer.partition_index}"
                    )

        await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms, group=group)

    async def end(
        self, producer: tuple[int, int], *, commit: bool, is_version_2: bool
    ) -> tuple[int, int]:
        """Commits or aborts; returns the producer id and epoch to continue with."""

        async def attempt() -> tuple[int, int]:
            connection = await self._coordinator()
            response: EndTxnResponse = await connection.call(
                EndTxnRequest(
                    transactional_id=self._id,
                    producer_id=producer[0],
                    producer_epoch=producer[1],
                    committed=commit,
                ),
                version=connection.version_of(
                    "EndTxn", None if is_version_2 else END_UNTIL_VERSION_1
                ),
            )
            errors.check(response.error_code, subject=self._id)
            if response.producer_id < 0:
                return producer
            return response.producer_id, response.producer_epoch

        return await self._retrying(attempt)

    async def _coordinator(self) -> Connection:
        link = await self._cluster.coordinator(self._key)
        return await link.connection()

    async def _retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await self._cluster.retrying(attempt, timeout_ms=self._timeout_ms, group=self._key)
