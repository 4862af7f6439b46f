"""One request of every API that concerns somebody's rights, about fixed topics and groups."""

import secrets
import uuid

import msgspec

from mainstem.model import scram
from mainstem.model.records.record import Record, build_batch
from mainstem.wire.kafka.messages import alter_configs as replacing
from mainstem.wire.kafka.messages import incremental_alter_configs as altering
from mainstem.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from mainstem.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from mainstem.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    OpData,
    RequestEntityData,
    RequestEntryData,
)
from mainstem.wire.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from mainstem.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from mainstem.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from mainstem.wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from mainstem.wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from mainstem.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from mainstem.wire.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from mainstem.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from mainstem.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from mainstem.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from mainstem.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from mainstem.wire.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from mainstem.wire.kafka.messages.describe_acls import DescribeAclsRequest
from mainstem.wire.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
from mainstem.wire.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from mainstem.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from mainstem.wire.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from mainstem.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from mainstem.wire.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestPartitionData,
    RequestTopicData,
)
from mainstem.wire.kafka.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
)
from mainstem.wire.kafka.messages.describe_topic_partitions import TopicRequest as TopicAsked
from mainstem.wire.kafka.messages.describe_transactions import DescribeTransactionsRequest
from mainstem.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from mainstem.wire.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from mainstem.wire.kafka.messages.end_txn import EndTxnRequest
from mainstem.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from mainstem.wire.kafka.messages.heartbeat import HeartbeatRequest
from mainstem.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from mainstem.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from mainstem.wire.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from mainstem.wire.kafka.messages.list_config_resources import ListConfigResourcesRequest
from mainstem.wire.kafka.messages.list_groups import ListGroupsRequest
from mainstem.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from mainstem.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from mainstem.wire.kafka.messages.list_transactions import ListTransactionsRequest
from mainstem.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from mainstem.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from mainstem.wire.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from mainstem.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from mainstem.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from mainstem.wire.kafka.messages.sync_group import SyncGroupRequest
from mainstem.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from mainstem.wire.kafka.messages.unregister_broker import UnregisterBrokerRequest
from mainstem.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from mainstem.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TOPIC, GROUP, TRANSACTION = "matrix-topic", "matrix-group", "matrix-transaction"

Asked = tuple[msgspec.Struct, int | None]  # a request, and its version unless the newest


def scram_upserts(user: str, password: str) -> AlterUserScramCredentialsRequest:
    """What gives a user a password."""
    return AlterUserScramCredentialsRequest(
        upsertions=[
            ScramCredentialUpsertion(
                user,
                number,
                4096,
                salt := secrets.token_bytes(16),
                scram.salted_password(mechanism, password, salt, 4096),
            )
            for number, mechanism in ((1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512"))
        ]
    )


def batch(*, flags: int = 0) -> bytes:
    """A batch of one record; ``flags`` may make it transactional."""
    return bytes(build_batch([Record(0, 0, b"k", b"v", ())], flags=flags))


def produce(topic: str = TOPIC, *, acks: int = -1, transactional_id: str | None = None) -> Asked:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(0, batch())])
    return ProduceRequest(transactional_id, acks, 5_000, [data]), 9


def fetch(topic: str = TOPIC) -> Asked:
    wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0)])
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=10**6, topics=[wanted]), 12


def join() -> Asked:
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    return request, None


def commit() -> Asked:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    return OffsetCommitRequest(group_id=GROUP, topics=[topic]), 9


def fetch_offsets() -> Asked:
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    group = OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    return OffsetFetchRequest(groups=[group]), 9


def create_topic(name: str) -> Asked:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=5_000), None


def alter_config() -> Asked:
    change = altering.AlterableConfig("retention.ms", 0, "1000000")
    resource = altering.AlterConfigsResource(2, TOPIC, [change])
    return altering.IncrementalAlterConfigsRequest(resources=[resource]), None


def replace_configs(kind: int = 2, name: str = TOPIC) -> Asked:
    resource = replacing.AlterConfigsResource(kind, name, [])
    return replacing.AlterConfigsRequest(resources=[resource], validate_only=True), None


def add_partitions() -> Asked:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION,
        v3_and_below_producer_id=5,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    return request, 3


def commit_in_transaction() -> Asked:
    part = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    request = TxnOffsetCommitRequest(
        transactional_id=TRANSACTION,
        group_id=GROUP,
        producer_id=5,
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])],
    )
    return request, None


def markers() -> Asked:
    topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])
    marker = WritableTxnMarker(producer_id=5, producer_epoch=0, topics=[topic])
    return WriteTxnMarkersRequest(markers=[marker]), 1


def consumer_heartbeat() -> Asked:
    request = ConsumerGroupHeartbeatRequest(
        group_id=f"{GROUP}-new",
        member_id=str(uuid.uuid4()),
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    return request, None


def quota() -> Asked:
    entry = RequestEntryData([RequestEntityData("user", "matrix")], [OpData("request_rate", 1e9)])
    return AlterClientQuotasRequest(entries=[entry]), None


def list_offsets() -> Asked:
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[part])]), None


def epochs() -> Asked:
    topic = OffsetForLeaderTopic(topic=TOPIC, partitions=[OffsetForLeaderPartition(partition=0)])
    return OffsetForLeaderEpochRequest(topics=[topic]), None


def any_filter(request: type[DescribeAclsRequest] | type[DeleteAclsFilter]) -> msgspec.Struct:
    """A filter that finds rules about a topic that nobody has."""
    return request(
        resource_type_filter=2,
        resource_name_filter="no-such-topic",
        pattern_type_filter=1,
        operation=1,
        permission_type=1,
    )


def acl() -> Asked:
    creation = AclCreation(2, "no-such-topic", 3, "User:matrix", "*", 3, 3)
    return CreateAclsRequest(creations=[creation]), None


def delete_acls() -> Asked:
    wanted = any_filter(DeleteAclsFilter)
    assert isinstance(wanted, DeleteAclsFilter)
    return DeleteAclsRequest(filters=[wanted]), None


def delete_records() -> Asked:
    part = DeleteRecordsPartition(partition_index=0, offset=0)
    topic = DeleteRecordsTopic(name=TOPIC, partitions=[part])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=5_000), None


def delete_offsets() -> Asked:
    topic = OffsetDeleteRequestTopic(TOPIC, [OffsetDeleteRequestPartition(0)])
    return OffsetDeleteRequest(GROUP, [topic]), None


def grow() -> Asked:
    topic = CreatePartitionsTopic(name=TOPIC, count=2)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=5_000, validate_only=True)
    return request, None


def metadata(name: str = TOPIC) -> Asked:
    topic = MetadataRequestTopic(name=name)
    return MetadataRequest(topics=[topic], allow_auto_topic_creation=False), None


def describe_configs(kind: int = 2, name: str = TOPIC) -> Asked:
    resource = DescribeConfigsResource(kind, name, None)
    return DescribeConfigsRequest(resources=[resource]), None


def delete_topic(name: str) -> Asked:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5_000), None


def elect() -> Asked:
    return ElectLeadersRequest(topic_partitions=[TopicPartitions(TOPIC, [0])]), None


def reassign() -> Asked:
    topic = ReassignableTopic(TOPIC, [ReassignablePartition(0, [1])])
    return AlterPartitionReassignmentsRequest(topics=[topic]), None


def quorum() -> Asked:
    topic = RequestTopicData("__cluster_metadata", [RequestPartitionData(0)])
    return DescribeQuorumRequest(topics=[topic]), None


def features() -> Asked:
    update = FeatureUpdateKey("group.version", 1)
    return UpdateFeaturesRequest(feature_updates=[update], validate_only=True), None


def move() -> Asked:
    topic = AlterReplicaLogDirTopic(TOPIC, [0])
    return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir("/elsewhere", [topic])]), None


LIST_REASSIGNMENTS: Asked = (ListPartitionReassignmentsRequest(topics=None), None)
UNREGISTER: Asked = (UnregisterBrokerRequest(broker_id=99), None)
ALL_TOPICS: Asked = (MetadataRequest(topics=None), None)
LIST_GROUPS: Asked = (ListGroupsRequest(), None)
LIST_TRANSACTIONS: Asked = (ListTransactionsRequest(), None)
DESCRIBE_ACLS: Asked = (any_filter(DescribeAclsRequest), None)
DESCRIBE_QUOTAS: Asked = (DescribeClientQuotasRequest(components=[], strict=False), None)
DESCRIBE_SCRAM: Asked = (DescribeUserScramCredentialsRequest(users=None), None)
DESCRIBE_LOG_DIRS: Asked = (DescribeLogDirsRequest(topics=None), None)
LIST_CONFIG_RESOURCES: Asked = (ListConfigResourcesRequest(resource_types=[2]), None)
DESCRIBE_GROUP: Asked = (DescribeGroupsRequest(groups=[GROUP]), None)
DELETE_GROUP: Asked = (DeleteGroupsRequest(groups_names=[f"{GROUP}-gone"]), None)
CONSUMER_DESCRIBE: Asked = (ConsumerGroupDescribeRequest(group_ids=[GROUP]), None)
FIND_GROUP: Asked = (FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), None)
FIND_TRANSACTION: Asked = (FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION]), None)
SYNC: Asked = (SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m"), None)
HEARTBEAT: Asked = (HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), None)
LEAVE: Asked = (LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity("m")]), None)
INIT_IDEMPOTENT: Asked = (InitProducerIdRequest(transactional_id=None), 5)
INIT_TRANSACTIONAL: Asked = (
    InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=5_000),
    5,
)
INIT_TWO_PHASE: Asked = (
    InitProducerIdRequest(
        transactional_id=TRANSACTION, transaction_timeout_ms=5_000, enable2_pc=True
    ),
    6,
)
ADD_OFFSETS: Asked = (
    AddOffsetsToTxnRequest(transactional_id=TRANSACTION, producer_id=5, group_id=GROUP),
    None,
)
END: Asked = (EndTxnRequest(transactional_id=TRANSACTION, producer_id=5), 4)
DESCRIBE_PRODUCERS: Asked = (DescribeProducersRequest(topics=[TopicRequest(TOPIC, [0])]), None)
DESCRIBE_TRANSACTIONS: Asked = (
    DescribeTransactionsRequest(transactional_ids=[TRANSACTION]),
    None,
)
TOPIC_PARTITIONS: Asked = (
    DescribeTopicPartitionsRequest(topics=[TopicAsked(TOPIC)], response_partition_limit=10),
    None,
)
