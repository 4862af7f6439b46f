"""Transactional requests, said by hand: with any identity, any sequence and any content."""

import time
import uuid
from typing import Any, NamedTuple, Self

from tests.integration.bad_input.wire import FETCH, PRODUCE, Raw

from mainstem.model.records.batch import TRANSACTIONAL_MASK, read_header
from mainstem.model.records.record import ProducerStamp, Record, build_batch, records_of
from mainstem.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from mainstem.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from mainstem.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from mainstem.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from mainstem.wire.kafka.messages.end_txn import EndTxnRequest
from mainstem.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from mainstem.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from mainstem.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

OFFSET_FETCH, CREATE_TOPICS, INIT, ADD_PARTITIONS = 9, 19, 22, 24
ADD_OFFSETS, END, MARKERS, OFFSET_COMMIT = 25, 26, 27, 28
DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS = 61, 65, 66

# How a client of the first and of the second version of transactions asks.
OLD = {PRODUCE: 9, ADD_PARTITIONS: 3, ADD_OFFSETS: 3, END: 4, OFFSET_COMMIT: 3}
NEW = {PRODUCE: 12, ADD_PARTITIONS: 3, ADD_OFFSETS: 4, END: 5, OFFSET_COMMIT: 5}


class Who(NamedTuple):
    """A producer's identity."""

    producer_id: int
    epoch: int


NOBODY = Who(-1, -1)


def batch(who: Who, sequence: int, *values: bytes, flags: int = TRANSACTIONAL_MASK) -> bytes:
    """A batch of that producer, transactional unless told otherwise."""
    now_ms = int(time.time() * 1000)
    records = [Record(0, now_ms, b"k", value) for value in values]
    return bytes(build_batch(records, flags=flags, producer=ProducerStamp(*who, sequence)))


class Wire:
    """A connection that says whatever it is told about one transactional id."""

    def __init__(self, address: str, name: str | None, versions: dict[int, int]) -> None:
        self.raw = Raw(address, timeout_s=30)
        self.name = name
        self.versions = versions

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.socket.close()

    def call(self, api_key: int, request: Any) -> Any:
        return self.raw.call(api_key, self.versions[api_key], request)

    def init(self, expected: Who = NOBODY, timeout_ms: int = 60_000) -> tuple[int, Who]:
        """(error code, identity)."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected.producer_id,
            producer_epoch=expected.epoch,
        )
        answer = self.raw.call(INIT, 4, request)
        return answer.error_code, Who(answer.producer_id, answer.producer_epoch)

    def add(self, who: Who, *places: tuple[str, int]) -> list[int]:
        """The error code of each partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name or "",
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[partition])
                for topic, partition in places
            ],
        )
        answer = self.call(ADD_PARTITIONS, request)
        return [
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]

    def produce(self, topic: str, data: bytes, partition: int = 0) -> tuple[int, int]:
        """(error code, base offset)."""
        part = PartitionProduceData(index=partition, records=data)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[part])],
        )
        answer = self.call(PRODUCE, request).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    def end(self, who: Who, *, commit: bool = True) -> tuple[int, Who]:
        """(error code, identity to go on with)."""
        request = EndTxnRequest(
            transactional_id=self.name or "",
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        answer = self.call(END, request)
        if answer.producer_id < 0:
            return answer.error_code, who
        return answer.error_code, Who(answer.producer_id, answer.producer_epoch)

    def add_group(self, who: Who, group: str) -> int:
        """The error code."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name or "",
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            group_id=group,
        )
        return int(self.call(ADD_OFFSETS, request).error_code)

    def commit_offset(self, who: Who, group: str, topic: str, offset: int, **rest: Any) -> int:
        """The error code of a position in partition 0."""
        metadata = rest.pop("metadata", "")
        part = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name or "",
            group_id=group,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
            **rest,
        )
        return int(self.call(OFFSET_COMMIT, request).topics[0].partitions[0].error_code)

    def position(self, group: str, topic: str) -> tuple[int, int]:
        """(error code, stable position in partition 0)."""
        wanted = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        )
        request = OffsetFetchRequest(groups=[wanted], require_stable=True)
        part = self.raw.call(OFFSET_FETCH, 8, request).groups[0].topics[0].partitions[0]
        return part.error_code, part.committed_offset

    def state(self, name: str) -> str:
        """The state of a transactional id, or nothing where it is not known."""
        request = DescribeTransactionsRequest(transactional_ids=[name])
        [found] = self.raw.call(DESCRIBE_TRANSACTIONS, 0, request).transaction_states
        return str(found.transaction_state)

    def fetch(self, topic: str, *, committed: bool = True, replica_id: int = -1) -> Any:
        """The answer for partition 0 from its start."""
        part = FetchPartition(fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            replica_id=replica_id,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=int(committed),
            topics=[FetchTopic(topic=topic, partitions=[part])],
        )
        answer = self.raw.call(FETCH, 11, request)
        return answer.responses[0].partitions[0] if answer.responses else answer

    def values(self, topic: str) -> list[bytes]:
        """What a read-committed client makes of the topic."""
        found = self.fetch(topic)
        aborted = sorted(
            (one.first_offset, one.producer_id) for one in found.aborted_transactions or ()
        )
        left_out: set[int] = set()
        values: list[bytes] = []
        data, at = memoryview(bytes(found.records)), 0
        while at < len(data):
            header = read_header(data[at:])
            while aborted and aborted[0][0] <= header.base_offset:
                left_out.add(aborted.pop(0)[1])
            if header.is_control:
                left_out.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in left_out):
                batch_bytes = data[at : at + header.size]
                values += [bytes(one.value or b"") for one in records_of(batch_bytes)]
            at += header.size
        return values


def fresh_topic(wire: Wire, partitions: int = 2) -> str:
    """A topic of the test's own."""
    name = f"topic-{uuid.uuid4().hex[:8]}"
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    answer = wire.raw.call(CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic]))
    assert answer.topics[0].error_code == 0
    return name
