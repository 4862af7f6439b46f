"""What is acknowledged on a topic with one copy is seen by the next request of any connection."""

import uuid

import pytest
from tests.clients.oracle import Oracle
from tests.integration.bad_input.wire import FETCH, Raw, batch_of
from tests.integration.kafka.conftest import Broker, create, is_apache

from mainstem.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LIST_OFFSETS, LATEST = 2, -1
LEADER = 1


def created(broker: Broker, topic: str, policy: str) -> Oracle:
    """A topic that is synced at every append, or that is acknowledged when it is written."""
    if is_apache(broker):
        configs = {"flush.messages": "1"} if policy == "fsync" else {}
    else:
        configs = {"flush.policy": policy}
    return create(broker, topic, 1, configs)


def end_of(node: Raw, topic: str) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])]
    )
    answer = node.call(LIST_OFFSETS, 6, request).topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.offset)


def fetched(node: Raw, topic: str, offset: int) -> tuple[int, int]:
    """Bytes at an offset, without waiting, and the high watermark."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    answer = node.call(FETCH, 11, request).responses[0].partitions[0]
    assert answer.error_code == 0
    return len(answer.records or b""), answer.high_watermark


@pytest.mark.parametrize("policy", ["fsync", "written"])
def test_a_record_with_acks_1_is_seen_once_it_is_acknowledged(policy: str, broker: Broker) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    oracle = created(broker, topic, policy)
    stale = []
    with Raw(oracle.writer(topic)) as writer, Raw(oracle.writer(topic)) as reader:
        for number in range(50):
            assert writer.produce(topic, bytes(batch_of(b"v")), acks=LEADER) == (0, number)
            if end_of(reader, topic) != number + 1:
                stale.append(number)
            size, high_watermark = fetched(reader, topic, number)
            if not size or high_watermark != number + 1:
                stale.append(number)

    assert stale == []


@pytest.mark.parametrize("policy", ["fsync", "written"])
def test_the_first_record_of_a_topic_is_seen_once_it_is_acknowledged(
    policy: str, broker: Broker
) -> None:
    stale = []
    for _ in range(10):
        topic = f"topic-{uuid.uuid4().hex[:8]}"
        oracle = created(broker, topic, policy)
        with Raw(oracle.writer(topic)) as writer, Raw(oracle.writer(topic)) as reader:
            assert writer.produce(topic, bytes(batch_of(b"v")), acks=LEADER) == (0, 0)
            if end_of(reader, topic) != 1 or not fetched(reader, topic, 0)[0]:
                stale.append(topic)

    assert stale == []
