"""A writer that stood still, or lost the others, tells nothing that may be out of date."""

import socket
import struct
import time
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from mainstem.model.records.record import Record, build_batch
from mainstem.testing.local_cluster import LocalCluster, MemberNode
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

NOT_LEADER = 6
LATEST = -1
VERSIONS = {0: 9, 1: 11, 2: 6}  # of Produce, Fetch, ListOffsets: topics by name


class Line:
    """A connection whose questions may wait in the socket of a node that stands still."""

    def __init__(self, node: MemberNode) -> None:
        host, _, port = node.kafka.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)

    def send(self, key: int, request: Any) -> None:
        frame: list[Any] = codec.encode_request_frame(key, VERSIONS[key], key, "test", request)
        self._socket.sendall(b"".join(frame))

    def answer(self, key: int) -> Any:
        [size] = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        _, body = codec.decode_response_header(key, VERSIONS[key], frame, 0, size)
        return codec.decode_response(key, VERSIONS[key], frame, body, size)

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            assert piece, "the node hung up"
            found += piece
        return found


def end_of(topic: str) -> ListOffsetsRequest:
    part = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])]
    )


def records_of(topic: str, offset: int) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )


def record_for(topic: str, *, acks: int) -> ProduceRequest:
    batch = build_batch([Record(0, int(time.time() * 1000), None, b"late")])
    part = PartitionProduceData(index=0, records=bytes(batch))
    return ProduceRequest(
        acks=acks,
        timeout_ms=9_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[part])],
    )


@pytest.fixture
def topic(cluster: LocalCluster) -> str:
    """One partition with three copies and ten records."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("told", 1, 3)])["told"].result(20)
    write(cluster, 10)
    return "told"


def write(cluster: LocalCluster, count: int) -> None:
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "topic.metadata.refresh.interval.ms": 300,
            "socket.timeout.ms": 2_000,
        }
    )
    for number in range(count):
        producer.produce("told", str(number).encode())
    assert producer.flush(60) == 0, cluster.logs()


def leader_of(cluster: LocalCluster) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return int(admin.list_topics("told", timeout=10).topics["told"].partitions[0].leader)


def test_a_paused_writer_that_goes_on_serves_nothing_out_of_date(
    cluster: LocalCluster, topic: str
) -> None:
    writer = cluster.nodes[leader_of(cluster)]
    known = [Line(writer) for _ in range(3)]
    known[0].send(2, end_of(topic))
    assert known[0].answer(2).topics[0].partitions[0].offset == 10
    for line, acks in ((known[1], 1), (known[2], -1)):
        line.send(0, record_for(topic, acks=acks))
        assert line.answer(0).responses[0].partition_responses[0].error_code == 0
    writer.pause()
    write(cluster, 5)  # written by another node by now
    asked = Line(writer)
    asked.send(2, end_of(topic))
    known[0].send(1, records_of(topic, 12))
    known[1].send(0, record_for(topic, acks=1))
    known[2].send(0, record_for(topic, acks=-1))
    writer.go_on()
    end = asked.answer(2).topics[0].partitions[0]
    read = known[0].answer(1).responses[0].partitions[0]
    once = known[1].answer(0).responses[0].partition_responses[0]
    safe = known[2].answer(0).responses[0].partition_responses[0]
    # Either nothing is told, or what is true: the node may have heard of its successor.
    assert (end.error_code, end.offset) in {(NOT_LEADER, -1), (0, 17)}
    assert read.error_code == NOT_LEADER or read.high_watermark == 17
    assert once.error_code == NOT_LEADER
    assert safe.error_code == NOT_LEADER
    for line in (asked, *known):
        line.close()


def test_a_node_without_the_others_stops_telling_and_goes_on_when_they_are_back(
    cluster: LocalCluster, topic: str
) -> None:
    writer = cluster.nodes[leader_of(cluster)]
    others = [node for node in cluster.nodes.values() if node is not writer]
    line = Line(writer)
    for node in others:
        node.pause()
    time.sleep(2.5)
    line.send(2, end_of(topic))
    cut_off = line.answer(2).topics[0].partitions[0].error_code
    for node in others:
        node.go_on()
    assert cut_off == NOT_LEADER
    give_up = time.monotonic() + 30
    found = (-1, -1)
    while found != (0, 10):
        assert time.monotonic() < give_up, cluster.logs()
        line.close()
        line = Line(cluster.nodes[leader_of(cluster)])
        line.send(2, end_of(topic))
        part = line.answer(2).topics[0].partitions[0]
        found = (part.error_code, part.offset)
        time.sleep(0.2)
    line.close()
