"""Requests of share groups, for the matrix of rights."""

from tests.integration.security.requests import GROUP, TOPIC, Asked

from mainstem.wire.kafka.messages import alter_share_group_offsets as altering
from mainstem.wire.kafka.messages import delete_share_group_offsets as deleting
from mainstem.wire.kafka.messages import describe_share_group_offsets as describing
from mainstem.wire.kafka.messages import share_fetch as fetching
from mainstem.wire.kafka.messages.share_acknowledge import ShareAcknowledgeRequest
from mainstem.wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest
from mainstem.wire.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

SHARE_GROUP = f"{GROUP}-share"
TOPIC_IDS: dict[str, bytes] = {}  # known once the topics are there
MEMBER = "matrix-member"

DESCRIBE: Asked = (ShareGroupDescribeRequest(group_ids=[SHARE_GROUP]), None)
ACKNOWLEDGE: Asked = (ShareAcknowledgeRequest(SHARE_GROUP, MEMBER, 1), None)


def beat(group: str, epoch: int) -> Asked:
    topics = [TOPIC] if epoch == 0 else None
    return ShareGroupHeartbeatRequest(group, MEMBER, epoch, None, topics), None


def new_member() -> Asked:
    return beat(f"{SHARE_GROUP}-new", 0)


def fetch() -> Asked:
    topic = fetching.FetchTopic(TOPIC_IDS[TOPIC], [fetching.FetchPartition(0)])
    request = fetching.ShareFetchRequest(SHARE_GROUP, MEMBER, 0, max_records=1, topics=[topic])
    return request, None


def offsets() -> Asked:
    topic = describing.DescribeShareGroupOffsetsRequestTopic(TOPIC, [0])
    group = describing.DescribeShareGroupOffsetsRequestGroup(SHARE_GROUP, [topic])
    return describing.DescribeShareGroupOffsetsRequest([group]), None


def alter() -> Asked:
    part = altering.AlterShareGroupOffsetsRequestPartition(0, 0)
    topic = altering.AlterShareGroupOffsetsRequestTopic(TOPIC, [part])
    return altering.AlterShareGroupOffsetsRequest(SHARE_GROUP, [topic]), None


def delete() -> Asked:
    topic = deleting.DeleteShareGroupOffsetsRequestTopic(TOPIC)
    return deleting.DeleteShareGroupOffsetsRequest(SHARE_GROUP, [topic]), None
