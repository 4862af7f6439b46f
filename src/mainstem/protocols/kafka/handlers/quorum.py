"""DescribeQuorum, UpdateFeatures and UnregisterBroker.

The catalogue is described as Kafka's metadata log: it has one leader, and on a single node no other
voter and no observer.
"""

from mainstem.broker.api.cluster import FeatureUpdate, Quorum, QuorumMember
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import NodeId
from mainstem.protocols.kafka.advertised_address import reached_at
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code, kafka_message
from mainstem.security.authorisation.acl import Operation
from mainstem.wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from mainstem.wire.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from mainstem.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

METADATA_TOPIC = "__cluster_metadata"
LISTENER = "KAFKA"

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_FIRST_WITHOUT_RESULTS = 2


# DescribeQuorum


def describe_quorum(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe the leader, voters and observers of the catalogue, and their offsets."""
    try:
        call.need_cluster(Operation.DESCRIBE)
        quorum = call.broker.cluster.quorum()
    except MainstemError as error:
        return DescribeQuorumResponse(
            error_code=kafka_code(error), error_message=kafka_message(error), topics=[], nodes=[]
        )
    return DescribeQuorumResponse(
        topics=[
            ResponseTopicData(
                asked.topic_name,
                [
                    _described(asked.topic_name, partition.partition_index, quorum)
                    for partition in asked.partitions
                ],
            )
            for asked in request.topics
        ],
        nodes=[
            Node(member.node.id, [Listener(LISTENER, *reached_at(call, member.node))])
            for member in quorum.members
        ],
    )


def _described(topic: str, partition: int, quorum: Quorum) -> ResponsePartitionData:
    if (topic, partition) != (METADATA_TOPIC, 0):
        return ResponsePartitionData(
            partition_index=partition, error_code=kafka_code(ErrorCode.UNKNOWN_TOPIC)
        )
    return ResponsePartitionData(
        partition_index=partition,
        leader_id=quorum.leader.id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.end,
        current_voters=[_replica(m, quorum) for m in quorum.members if m.is_voter],
        observers=[_replica(m, quorum) for m in quorum.members if not m.is_voter],
    )


def _replica(member: QuorumMember, quorum: Quorum) -> ReplicaState:
    known = member.end >= 0
    return ReplicaState(
        replica_id=member.node.id,
        replica_directory_id=member.directory,
        log_end_offset=member.end,
        last_fetch_timestamp=quorum.at_ms if known else -1,
        last_caught_up_timestamp=quorum.at_ms if member.end == quorum.end else -1,
    )


# UpdateFeatures


async def update_features(call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Change the levels of features, all or none."""
    try:
        call.need_cluster(Operation.ALTER)
        updates = [_update(call.version, asked) for asked in request.feature_updates]
        await call.broker.cluster.update_features(updates, validate_only=request.validate_only)
    except MainstemError as error:
        return UpdateFeaturesResponse(
            error_code=kafka_code(error), error_message=kafka_message(error), results=[]
        )
    results = [UpdatableFeatureResult(asked.feature) for asked in request.feature_updates]
    if call.version >= _FIRST_WITHOUT_RESULTS:
        results = []
    return UpdateFeaturesResponse(error_message=None, results=results)


def _update(version: int, asked: FeatureUpdateKey) -> FeatureUpdate:
    lowers = asked.allow_downgrade
    if version >= 1:
        if asked.upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                f"unknown upgrade type {asked.upgrade_type}",
                subject=asked.feature[:100],
            )
        lowers = asked.upgrade_type != _UPGRADE
    return FeatureUpdate(asked.feature, asked.max_version_level, lowers)


# UnregisterBroker


async def unregister_broker(
    call: Call, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Remove a node permanently."""
    try:
        call.need_cluster(Operation.ALTER)
        await call.broker.cluster.unregister(NodeId(request.broker_id))
    except MainstemError as error:
        return UnregisterBrokerResponse(
            error_code=kafka_code(error), error_message=kafka_message(error)
        )
    return UnregisterBrokerResponse(error_message=None)


SERVED = {
    55: ApiHandler(describe_quorum, 0, 2),
    57: ApiHandler(update_features, 0, 2),
    64: ApiHandler(unregister_broker, 0, 0),
}
