"""Administration of transactions: describe, list, and abort hanging ones.

A transaction *hangs* when a partition holds records of it that are unknown to its coordinator.
Kafka's tools find such partitions by DescribeProducers and end the transaction there by
WriteTxnMarkers. Nodes write markers by other requests, so this one only aborts.
"""

from mainstem.broker.api.transactions import STATE_LABELS, ProducerIdentity, TransactionFilter
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import NONE, kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from mainstem.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from mainstem.wire.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from mainstem.wire.kafka.messages.list_transactions import TransactionState as ListedState
from mainstem.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def describe_transactions(
    call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[_described(call, each) for each in request.transactional_ids]
    )


def _described(call: Call, transactional_id: str) -> TransactionState:
    try:
        call.need_transaction(Operation.DESCRIBE, transactional_id)
        found = call.broker.transactions.describe(transactional_id)
    except MainstemError as error:
        return TransactionState(
            transactional_id=transactional_id, error_code=kafka_code(error), topics=[]
        )
    topics: dict[str, list[int]] = {}
    for topic, partition in found.partitions:
        if not call.may_topic(Operation.DESCRIBE, topic):
            continue
        topics.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer.producer_id,
        producer_epoch=found.producer.epoch,
        topics=[TopicData(topic=topic, partitions=numbers) for topic, numbers in topics.items()],
    )


def list_transactions(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List the transactional ids that match the filters; unknown names of states match none."""
    wanted = TransactionFilter(
        states=frozenset(request.state_filters),
        producer_ids=frozenset(request.producer_id_filters),
        duration_ms=request.duration_filter,
        pattern=request.transactional_id_pattern or None,
    )
    try:
        found = call.broker.transactions.list(wanted)
    except MainstemError as error:
        return ListTransactionsResponse(
            error_code=kafka_code(error), unknown_state_filters=[], transaction_states=[]
        )
    return ListTransactionsResponse(
        unknown_state_filters=sorted(wanted.states - STATE_LABELS),
        transaction_states=[
            ListedState(
                transactional_id=line.transactional_id,
                producer_id=line.producer_id,
                transaction_state=line.state,
            )
            for line in found
            if call.peer.rights.may(
                Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, line.transactional_id
            )
        ],
    )


def describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The producers of each partition, and the first offsets of their open transactions."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_producers(call, topic.name, p) for p in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers(call: Call, topic: str, partition: int) -> PartitionResponse:
    try:
        call.need_topic(Operation.READ, topic)
        found = call.broker.streams.partition(topic, partition).state.described()
    except MainstemError as error:
        return PartitionResponse(
            partition_index=partition,
            error_code=kafka_code(error),
            error_message=kafka_message(error),
            active_producers=[],
        )
    return PartitionResponse(
        partition_index=partition,
        active_producers=[
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.seen_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=each.transaction_start,
            )
            for each in found
        ],
    )


async def write_txn_markers(call: Call, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Abort hanging transactions, partition by partition."""
    response = WriteTxnMarkersResponse(markers=[])
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[])
        response.markers.append(result)
        for topic in marker.topics:
            answer = WritableTxnMarkerTopicResult(name=topic.name, partitions=[])
            result.topics.append(answer)
            for partition in topic.partition_indexes:
                code = await _abort(call, marker, (topic.name, partition))
                answer.partitions.append(
                    WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
                )
    return response


async def _abort(call: Call, marker: WritableTxnMarker, place: tuple[str, int]) -> int:
    try:
        if not call.may_cluster(Operation.ALTER):
            call.need_cluster(Operation.CLUSTER_ACTION)
        if marker.transaction_result:
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST, "only the coordinator may commit a transaction"
            )
        producer = ProducerIdentity(marker.producer_id, marker.producer_epoch)
        if not call.broker.streams.partition(*place).has_transaction(*producer):
            # A marker would fence the producer without need.
            raise InvalidRequest(
                ErrorCode.INVALID_TXN_STATE, "no transaction is open in the partition"
            )
        await call.broker.transactions.abort_hanging(place, producer, marker.coordinator_epoch)
    except MainstemError as error:
        return kafka_code(error)
    return NONE


SERVED = {
    27: ApiHandler(write_txn_markers, 1, 1),
    61: ApiHandler(describe_producers, 0, 0),
    65: ApiHandler(describe_transactions, 0, 0),
    66: ApiHandler(list_transactions, 0, 2),
}
