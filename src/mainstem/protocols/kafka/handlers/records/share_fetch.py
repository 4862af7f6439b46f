"""ShareFetch and ShareAcknowledge: lock records for a member and apply its acknowledgements.

Whole batches are sent, with the ranges of records that are locked for the member. The response
names the new leader of a partition that moved, so that clients need no Metadata request.
"""

from functools import partial

from mainstem.broker.api.share_groups import (
    SESSION_FINAL,
    ShareAcknowledgeCall,
    ShareFetchAnswer,
    ShareFetchCall,
    ShareFetched,
)
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import StreamId
from mainstem.model.limits import FETCH_RESPONSE_BYTES_MAX, FETCH_WAIT_MS_MAX
from mainstem.protocols.kafka.advertised_address import reached_at
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.protocols.kafka.handlers.coordination.share_groups import need_shares
from mainstem.protocols.kafka.handlers.records.share_acks import Acks, stream_of
from mainstem.security.authorisation.acl import Operation
from mainstem.security.quotas import FETCH_BYTES
from mainstem.wire.kafka.messages import share_acknowledge as acking
from mainstem.wire.kafka.messages import share_fetch as fetching

# NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH: the response names the current leader.
_MOVED = frozenset({6, 74})
_RECORD_LIMIT = 1  # share.acquire.mode: max_records is a strict limit


async def share_fetch(
    call: Call, request: fetching.ShareFetchRequest
) -> fetching.ShareFetchResponse:
    """Apply acknowledgements, then lock records for the member."""
    try:
        group_id, member_id = _permitted(call, request.group_id, request.member_id)
        _check_renewal(request)
        acks = Acks(request.topics, renews=request.is_renew_ack)
        answer = await call.broker.shares.fetch(
            ShareFetchCall(
                group_id=group_id,
                member_id=member_id,
                session_epoch=request.share_session_epoch,
                named=tuple(acks.named),
                forgotten=tuple(
                    stream_of(topic.topic_id, partition)
                    for topic in request.forgotten_topics_data
                    for partition in topic.partitions
                ),
                acknowledgements=acks.taken,
                max_wait_ms=min(max(request.max_wait_ms, 0), FETCH_WAIT_MS_MAX),
                min_bytes=max(request.min_bytes, 0),
                max_bytes=min(max(request.max_bytes, 0), FETCH_RESPONSE_BYTES_MAX),
                max_records=max(request.max_records, 0),
                batch_size=max(request.batch_size, 0),
                strict=request.share_acquire_mode == _RECORD_LIMIT,
                renews=request.is_renew_ack,
                connection=call.peer.shares(),
                may_read=partial(call.may_topic, Operation.READ),
            )
        )
    except MainstemError as error:
        return fetching.ShareFetchResponse(
            error_code=kafka_code(error), error_message=kafka_message(error)
        )
    call.peer.charge(FETCH_BYTES, sum(len(each.records) for each in answer.partitions))
    return _fetched(call, answer, acks)


def _fetched(call: Call, answer: ShareFetchAnswer, acks: Acks) -> fetching.ShareFetchResponse:
    response = fetching.ShareFetchResponse(
        acquisition_lock_timeout_ms=answer.lock_timeout_ms, responses=[], node_endpoints=[]
    )
    refused = dict(acks.refused)
    found = [(each, refused.pop(each.stream, each.acknowledge_error)) for each in answer.partitions]
    found += [(ShareFetched(stream), error) for stream, error in refused.items()]
    topics: dict[bytes, fetching.ShareFetchableTopicResponse] = {}
    leaders: set[int] = set()
    for each, ack_error in found:
        topic_id, partition = each.stream
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = fetching.ShareFetchableTopicResponse(topic_id, [])
            response.responses.append(topic)
        data = fetching.PartitionData(
            partition_index=partition,
            error_code=kafka_code(each.error),
            error_message=_message(each.error),
            acknowledge_error_code=kafka_code(ack_error),
            acknowledge_error_message=_message(ack_error),
            records=each.records,
            acquired_records=[
                fetching.AcquiredRecords(
                    acquired.start, acquired.until - 1, acquired.delivery_count
                )
                for acquired in each.acquired
            ],
        )
        topic.partitions.append(data)
        if {data.error_code, data.acknowledge_error_code} & _MOVED:
            leader = _leader(call, each.stream)
            data.current_leader = fetching.LeaderIdAndEpoch(*leader)
            leaders.add(leader[0])
    response.node_endpoints = [
        fetching.NodeEndpoint(*endpoint) for endpoint in _endpoints(call, leaders)
    ]
    return response


async def share_acknowledge(
    call: Call, request: acking.ShareAcknowledgeRequest
) -> acking.ShareAcknowledgeResponse:
    """Apply acknowledgements; the final epoch also closes the member's session."""
    try:
        group_id, member_id = _permitted(call, request.group_id, request.member_id)
        acks = Acks(request.topics, renews=request.is_renew_ack)
        answer = await call.broker.shares.acknowledge(
            ShareAcknowledgeCall(
                group_id=group_id,
                member_id=member_id,
                session_epoch=request.share_session_epoch,
                acknowledgements=acks.taken,
                renews=request.is_renew_ack,
                connection=call.peer.shares(),
                may_read=partial(call.may_topic, Operation.READ),
            )
        )
    except MainstemError as error:
        return acking.ShareAcknowledgeResponse(
            error_code=kafka_code(error), error_message=kafka_message(error)
        )
    response = acking.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=answer.lock_timeout_ms, responses=[], node_endpoints=[]
    )
    topics: dict[bytes, acking.ShareAcknowledgeTopicResponse] = {}
    leaders: set[int] = set()
    for stream, refusal in (*answer.partitions, *acks.refused.items()):
        topic = topics.get(stream.topic)
        if topic is None:
            topic = topics[stream.topic] = acking.ShareAcknowledgeTopicResponse(stream.topic, [])
            response.responses.append(topic)
        data = acking.PartitionData(stream.partition, kafka_code(refusal), _message(refusal))
        topic.partitions.append(data)
        if data.error_code in _MOVED:
            leader = _leader(call, stream)
            data.current_leader = acking.LeaderIdAndEpoch(*leader)
            leaders.add(leader[0])
    response.node_endpoints = [
        acking.NodeEndpoint(*endpoint) for endpoint in _endpoints(call, leaders)
    ]
    return response


def _permitted(call: Call, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    need_shares(call)
    if not group_id or not member_id:
        raise InvalidRequest(ErrorCode.INVALID_REQUEST, "group id or member id is missing")
    call.need_group(Operation.READ, group_id)
    return group_id, member_id


def _check_renewal(request: fetching.ShareFetchRequest) -> None:
    """Refuse a request that both renews locks and fetches records (KIP-1222)."""
    wants = request.max_bytes, request.max_records, request.max_wait_ms, request.min_bytes
    if request.is_renew_ack and request.share_session_epoch != SESSION_FINAL and any(wants):
        raise InvalidRequest(
            ErrorCode.INVALID_REQUEST, "a request that renews locks must not fetch records"
        )


def _message(error: MainstemError | None) -> str | None:
    return None if error is None else kafka_message(error)


def _leader(call: Call, stream: StreamId) -> tuple[int, int]:
    """The writer of a partition and its epoch."""
    topic = call.broker.topics.by_id(stream.topic)
    if topic is None or stream.partition >= len(topic.streams):
        return -1, -1
    now = topic.streams[stream.partition]
    return now.writer, now.epoch


def _endpoints(call: Call, leaders: set[int]) -> list[tuple[int, str, int, str | None]]:
    return [
        (node.id, *reached_at(call, node), node.rack)
        for node in call.broker.topics.nodes()
        if node.id in leaders
    ]


SERVED = {
    78: ApiHandler(share_fetch, 1, 2),
    79: ApiHandler(share_acknowledge, 1, 2),
}
