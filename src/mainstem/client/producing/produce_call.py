"""One produce request: batches of several partitions of one node, and their responses."""

from collections.abc import Collection
from typing import Final, Protocol

import msgspec

from mainstem.client.cluster import Cluster
from mainstem.client.producing.outbox import ProducerBatch
from mainstem.client.settings import ProducerSettings
from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.records.batch import TRANSACTIONAL_MASK
from mainstem.model.records.columns import seal_body
from mainstem.model.records.record import NO_PRODUCER, build_batch
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

TOPIC_IDS_SINCE_VERSION: Final = 13
NO_TOPIC_ID: Final = bytes(16)
ANSWER_SLACK_MS: Final = 2_000


class ProducerTransaction(Protocol):
    """The transaction that the batches of a producer belong to."""

    @property
    def transactional_id(self) -> str:
        """The transactional id."""
        ...

    @property
    def produce_version_max(self) -> int | None:
        """The newest request version that fits the broker's transaction version."""
        ...

    async def joined(self, partitions: Collection[TopicPartition]) -> None:
        """Add partitions to the transaction before they are written to."""
        ...


class ProduceOptions(msgspec.Struct, frozen=True):
    """The values common to all requests of a producer."""

    acks: int
    codec: int
    settings: ProducerSettings
    transaction: ProducerTransaction | None = None


async def produce(
    cluster: Cluster, node: int, batches: list[ProducerBatch], options: ProduceOptions
) -> list[PartitionProduceResponse]:
    """Sends one request; returns the responses in the order of the batches.

    Raises:
        MainstemError: the request as a whole failed.
    """
    connection = await cluster.link(node).connection()
    ids = {}
    for batch in batches:
        info = cluster.known_topic(batch.partition.topic)
        ids[batch.partition.topic] = NO_TOPIC_ID if info is None else info.id
    has_ids = NO_TOPIC_ID not in ids.values()
    version_max = None if has_ids else TOPIC_IDS_SINCE_VERSION - 1
    if options.transaction is not None:
        await options.transaction.joined({batch.partition for batch in batches})
        version_max = options.transaction.produce_version_max or version_max
    version = connection.version_of("Produce", version_max)
    request = _request(batches, ids, options)
    if options.acks == 0:
        await connection.send_unanswered(request, version=version)
        return [PartitionProduceResponse(base_offset=-1) for _ in batches]
    # The broker may use its whole time-out; the network gets some more time.
    response: ProduceResponse = await connection.call(
        request, version=version, timeout_ms=request.timeout_ms + ANSWER_SLACK_MS
    )
    return _in_order(response, batches, ids if version >= TOPIC_IDS_SINCE_VERSION else None)


def _request(
    batches: list[ProducerBatch], ids: dict[str, bytes], options: ProduceOptions
) -> ProduceRequest:
    topics = {name: TopicProduceData(topic_id=ids[name], name=name) for name in ids}
    for batch in batches:
        data = _data(batch, options)
        topics[batch.partition.topic].partition_data.append(
            PartitionProduceData(batch.partition.partition, data)
        )
    transaction = options.transaction
    return ProduceRequest(
        transactional_id=None if transaction is None else transaction.transactional_id,
        acks=options.acks,
        timeout_ms=options.settings.request_timeout_ms,
        topic_data=list(topics.values()),
    )


def _data(batch: ProducerBatch, options: ProduceOptions) -> bytearray:
    """The bytes of one batch, compressed, with producer id and sequence number."""
    level = options.settings.compression_level
    producer = batch.stamp or NO_PRODUCER
    flags = 0 if options.transaction is None else TRANSACTIONAL_MASK
    codec = options.codec
    if batch.encoded is not None:
        return seal_body(batch.encoded, codec=codec, level=level, producer=producer, flags=flags)
    return build_batch(batch.records, codec=codec, level=level, producer=producer, flags=flags)


def _in_order(
    response: ProduceResponse, batches: list[ProducerBatch], ids: dict[str, bytes] | None
) -> list[PartitionProduceResponse]:
    """The responses in the order of the batches; a missing one is an error of the broker."""
    found = {
        (topic.name if ids is None else topic.topic_id, answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }
    answers = []
    for batch in batches:
        name, partition = batch.partition
        answer = found.get((name if ids is None else ids[name], partition))
        if answer is None:
            raise InvalidRequest(
                ErrorCode.INTERNAL,
                "the response lacks the partition",
                subject=str(batch.partition),
            )
        answers.append(answer)
    return answers
