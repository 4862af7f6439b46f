"""Transactions of producers: AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn.

Clients of transaction version 2 (KIP-890) use only the last two: partitions and groups are added by
writing to them, and every EndTxn gives the producer its next epoch. Older clients add first. The
versions of AddPartitionsToTxn that Kafka brokers use among themselves are not served.
"""

from mainstem.broker.api.groups import CommitRequest, OffsetToCommit
from mainstem.broker.api.transactions import EndRequest, ProducerIdentity
from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import NONE, kafka_code
from mainstem.protocols.kafka.handlers.coordination.transaction_errors import (
    OPERATION_NOT_ATTEMPTED,
    transaction_code,
)
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from mainstem.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from mainstem.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from mainstem.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_FIRST_WITH_FENCED = 2
_FIRST_COMMIT_WITH_ABORTABLE = 4
_FIRST_COMMIT_THAT_ADDS = 5
_FIRST_END_WITH_BUMP = 5
_OLD_CLIENT = 0
_CLIENT_WITH_BUMP = 2


async def add_partitions_to_txn(
    call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to the transaction of a client that adds before it writes."""
    asked = [(t.name, p) for t in request.v3_and_below_topics for p in t.partitions]
    codes = {place: _not_writable(call, *place) for place in asked}
    refusal = _refusal(call, request.v3_and_below_transactional_id)
    if refusal:
        codes = dict.fromkeys(asked, refusal)
    elif any(codes.values()):
        # All or nothing: the transaction is unchanged.
        codes = {place: code or OPERATION_NOT_ATTEMPTED for place, code in codes.items()}
    else:
        try:
            await call.broker.transactions.add_partitions(
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                asked,
                verify_only=False,
            )
        except MainstemError as error:
            code = transaction_code(error, fenced=call.version >= _FIRST_WITH_FENCED)
            codes = dict.fromkeys(asked, code)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition,
                        partition_error_code=codes[topic.name, partition],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


async def add_offsets_to_txn(
    call: Call, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a group's offsets to the transaction of a client that adds before it writes."""
    code = NONE
    try:
        call.need_transaction(Operation.WRITE, request.transactional_id)
        call.need_group(Operation.READ, request.group_id)
        await call.broker.transactions.add_offsets(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.group_id,
        )
    except MainstemError as error:
        code = transaction_code(error, fenced=call.version >= _FIRST_WITH_FENCED)
    return AddOffsetsToTxnResponse(error_code=code)


async def txn_offset_commit(call: Call, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
    """Store offsets of existing partitions; they take effect when the transaction commits."""
    response = TxnOffsetCommitResponse(topics=[])
    wanted: list[tuple[OffsetToCommit, TxnOffsetCommitResponsePartition]] = []
    for asked in request.topics:
        answer = TxnOffsetCommitResponseTopic(name=asked.name, partitions=[])
        response.topics.append(answer)
        for part in asked.partitions:
            result = TxnOffsetCommitResponsePartition(partition_index=part.partition_index)
            answer.partitions.append(result)
            result.error_code = _unknown(call, asked.name, part.partition_index, Operation.READ)
            if not result.error_code:
                offset = OffsetToCommit(
                    asked.name,
                    part.partition_index,
                    part.committed_offset,
                    part.committed_leader_epoch,
                    part.committed_metadata or "",
                )
                wanted.append((offset, result))
    if wanted:
        codes = await _commit(call, request, tuple(offset for offset, _ in wanted))
        for (_, result), code in zip(wanted, codes, strict=True):
            result.error_code = code
    return response


async def _commit(
    call: Call, request: TxnOffsetCommitRequest, offsets: tuple[OffsetToCommit, ...]
) -> list[int]:
    commit = CommitRequest(
        group_id=request.group_id,
        offsets=offsets,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
    )
    try:
        call.need_transaction(Operation.WRITE, request.transactional_id)
        call.need_group(Operation.READ, request.group_id)
        outcomes = await call.broker.transactions.commit_offsets(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit,
            verify_only=call.version < _FIRST_COMMIT_THAT_ADDS,
        )
    except MainstemError as error:
        abortable = call.version >= _FIRST_COMMIT_WITH_ABORTABLE
        return [transaction_code(error, abortable=abortable)] * len(offsets)
    return [kafka_code(outcome) for outcome in outcomes]


async def end_txn(call: Call, request: EndTxnRequest) -> EndTxnResponse:
    """Commit or abort; since version 5 the producer continues with the epoch in the response."""
    bumps = call.version >= _FIRST_END_WITH_BUMP
    try:
        call.need_transaction(Operation.WRITE, request.transactional_id)
        producer = await call.broker.transactions.end(
            EndRequest(
                transactional_id=request.transactional_id,
                producer=ProducerIdentity(request.producer_id, request.producer_epoch),
                commit=request.committed,
                client_version=_CLIENT_WITH_BUMP if bumps else _OLD_CLIENT,
            )
        )
    except MainstemError as error:
        code = transaction_code(error, fenced=call.version >= _FIRST_WITH_FENCED)
        return EndTxnResponse(error_code=code)
    return EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


def _refusal(call: Call, transactional_id: str) -> int:
    """The error code if the client may not use a transactional id, else 0."""
    try:
        call.need_transaction(Operation.WRITE, transactional_id)
    except MainstemError as error:
        return kafka_code(error)
    return NONE


def _not_writable(call: Call, name: str, partition: int) -> int:
    """The error code if a partition cannot be written to in a transaction, else 0.

    Clients may not write markers to internal topics, which hold the state of all groups.
    """
    code = _unknown(call, name, partition, Operation.WRITE)
    topic = call.broker.topics.by_name(name)
    if code == NONE and topic is not None and topic.internal:
        return kafka_code(ErrorCode.INVALID_TOPIC_NAME)
    return code


def _unknown(call: Call, name: str, partition: int, operation: Operation) -> int:
    """The error code if a partition is not allowed or does not exist, else 0."""
    if not call.may_topic(operation, name):
        return kafka_code(ErrorCode.NOT_AUTHORIZED)
    topic = call.broker.topics.by_name(name)
    known = topic is not None and 0 <= partition < len(topic.streams)
    return NONE if known else kafka_code(ErrorCode.UNKNOWN_TOPIC)


SERVED = {
    24: ApiHandler(add_partitions_to_txn, 0, 3),
    25: ApiHandler(add_offsets_to_txn, 0, 4),
    26: ApiHandler(end_txn, 0, 5),
    28: ApiHandler(txn_offset_commit, 0, 5),
}
