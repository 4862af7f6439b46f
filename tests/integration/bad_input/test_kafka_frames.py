"""Frames that no client would send, on the Kafka port of a real node.

Whatever arrives, the connection is answered or closed, memory stays within bounds, and other
connections go on. ``tests/fuzz`` does the same to the codec without a network.
"""

import random
import socket
import time

import pytest
from tests.integration.bad_input.wire import (
    API_VERSIONS,
    FETCH,
    METADATA,
    PRODUCE,
    PeakRss,
    Raw,
    Witness,
    batch_of,
    encoded,
    framed,
    header,
    open_files,
    rss_bytes,
)

from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest
from mainstem.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from mainstem.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from mainstem.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from mainstem.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

MIB = 1 << 20
CREATE_TOPICS, LIST_OFFSETS = 19, 2
INVALID_TOPIC, OUT_OF_RANGE = 17, 1

pytestmark = pytest.mark.usefixtures("witness")


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_are_closed_or_waited_for(node: LocalNode, seed: int) -> None:
    chance = random.Random(seed)
    with Raw(node.kafka) as raw:
        raw.send(chance.randbytes(chance.randint(1, 20_000)))
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.is_closed()


@pytest.mark.parametrize("seed", range(60))
def test_a_real_request_with_a_few_bytes_changed_is_answered_or_closed(
    node: LocalNode, seed: int
) -> None:
    chance = random.Random(seed)
    requests = [
        (API_VERSIONS, 3, ApiVersionsRequest("name", "1.0")),
        (METADATA, 12, MetadataRequest(topics=[MetadataRequestTopic(name="witness")])),
        (
            FETCH,
            12,
            FetchRequest(
                max_wait_ms=10,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[
                    FetchTopic(
                        topic="witness", partitions=[FetchPartition(partition_max_bytes=1 << 20)]
                    )
                ],
            ),
        ),
        (
            LIST_OFFSETS,
            7,
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name="witness", partitions=[ListOffsetsPartition(timestamp=-1)]
                    )
                ],
            ),
        ),
    ]
    api_key, version, request = requests[seed % len(requests)]
    data = bytearray(encoded(api_key, version, request))
    for _ in range(chance.randint(1, 4)):
        data[chance.randint(4, len(data) - 1)] = chance.randint(0, 255)
    with Raw(node.kafka) as raw:
        raw.send(bytes(data))
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.is_closed()


@pytest.mark.parametrize("length", [2**31 - 1, 100 * MIB + 1, 0x7FFF0000])
def test_a_length_beyond_the_limit_is_closed_before_memory_is_taken(
    node: LocalNode, length: int
) -> None:
    before = rss_bytes(node)
    with Raw(node.kafka) as raw:
        raw.send(length.to_bytes(4, "big") + header(PRODUCE, 9))
        assert raw.is_closed()
    assert rss_bytes(node) - before < 1 * MIB


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 1, 7])
def test_a_length_that_no_request_has_is_closed(node: LocalNode, length: int) -> None:
    with Raw(node.kafka) as raw:
        raw.send(length.to_bytes(4, "big", signed=True))
        assert raw.is_closed()


def test_many_large_claims_take_no_memory_until_bytes_arrive(node: LocalNode) -> None:
    before = rss_bytes(node)
    claims = [Raw(node.kafka) for _ in range(30)]
    for raw in claims:
        raw.send((90 * MIB).to_bytes(4, "big") + header(PRODUCE, 9))
    time.sleep(0.3)
    assert rss_bytes(node) - before < 30 * MIB
    for raw in claims:
        raw.socket.close()


def test_a_frame_that_ends_early_is_forgotten(node: LocalNode) -> None:
    whole = framed(header(API_VERSIONS, 0))
    for cut in range(len(whole)):
        with Raw(node.kafka) as raw:
            raw.send(whole[:cut])


def test_a_frame_may_come_byte_by_byte(node: LocalNode) -> None:
    with Raw(node.kafka) as raw:
        for byte in encoded(API_VERSIONS, 3, ApiVersionsRequest("a", "1"), 5):
            raw.send(bytes([byte]))
        answer = raw.frame()
        assert answer is not None
        assert answer[:4] == (5).to_bytes(4, "big")


def test_a_frame_shorter_than_its_message_is_closed(node: LocalNode) -> None:
    for body in (b"", b"\x00", b"\xff" * 3):
        with Raw(node.kafka) as raw:
            raw.send(framed(header(METADATA, 9) + body))
            assert raw.is_closed()


def test_bytes_after_a_message_pass_as_kafka_lets_them(node: LocalNode) -> None:
    whole = encoded(METADATA, 4, MetadataRequest(topics=[]))
    with Raw(node.kafka) as raw:
        raw.send(framed(whole[4:] + b"\x00" * 9))
        assert raw.frame() is not None


@pytest.mark.parametrize("api_key", [-1, 4, 5, 6, 7, 58, 59, 93, 999, 32767, -32768])
def test_an_unknown_api_is_closed(node: LocalNode, api_key: int) -> None:
    with Raw(node.kafka) as raw:
        raw.send(framed(header(api_key, 0) + b"\x00" * 20))
        assert raw.is_closed()


@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, METADATA, 10, 11, 19])
@pytest.mark.parametrize("version", [99, -1, 32767, -32768])
def test_an_unknown_version_is_closed_or_refused(
    node: LocalNode, api_key: int, version: int
) -> None:
    with Raw(node.kafka) as raw:
        raw.send(framed(header(api_key, version) + b"\x00" * 20))
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.is_closed()


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_so_that_anybody_can_read_it(
    node: LocalNode, version: int
) -> None:
    with Raw(node.kafka) as raw:
        raw.send(framed(header(API_VERSIONS, version) + b"\x00" * 4))
        answer = raw.frame()
        assert answer is not None
        assert answer[:6] == (7).to_bytes(4, "big") + (35).to_bytes(2, "big")
        found = codec.decode_response(API_VERSIONS, 0, answer, 4, len(answer))
        assert {key.api_key for key in found.api_keys} >= {PRODUCE, FETCH, METADATA}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("array of 2^31-1 names", header(METADATA, 4) + b"\x7f\xff\xff\xff\x01"),
        ("compact array of 2^32-1", header(METADATA, 12) + b"\x00\xff\xff\xff\xff\x0f"),
        ("uvarint without end", header(METADATA, 12) + b"\x00" + b"\xff" * 40),
        ("2^32-1 tags in the header", header(METADATA, 12) + b"\xff\xff\xff\xff\x0f" + b"\x00" * 9),
        ("a tag of 2^31 bytes", header(METADATA, 12) + b"\x01\x05\x80\x80\x80\x80\x08" + b"\0" * 9),
        ("a name longer than the frame", header(METADATA, 4) + b"\x00\x00\x00\x01\x7f\xffabc\x01"),
        ("a name of -5 bytes", header(METADATA, 4) + b"\x00\x00\x00\x01\xff\xfbabc\x01"),
        ("a name that is no text", header(METADATA, 4) + b"\x00\x00\x00\x01\x00\x02\xff\xfe\x01"),
        ("a client id that is no text", header(METADATA, 4, b"\xff\xfe") + b"\x00" * 5),
        ("a client id longer than the frame", header(METADATA, 4)[:8] + b"\x7f\xff" + b"a" * 20),
        ("a client id of 30,000", header(METADATA, 4, b"a" * 30_000) + b"\x00" * 5),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_counts_that_cannot_be_are_closed_at_once(node: LocalNode, name: str, data: bytes) -> None:
    with PeakRss(node) as memory, Raw(node.kafka) as raw:
        raw.send(framed(data))
        assert raw.is_closed()
    assert memory.growth < 8 * MIB


def test_counts_that_could_be_do_not_multiply_into_memory(node: LocalNode) -> None:
    """Ten million empty names in ten megabytes of a request."""
    count = 10_000_000
    body = b"\x00" + _uvarint(count + 1) + b"\x01\x00" * (count // 2)
    with PeakRss(node) as memory, Raw(node.kafka, timeout_s=30) as raw:
        raw.send(framed(header(METADATA, 9) + body + b"\x00\x00\x00\x00"))
        raw.socket.shutdown(socket.SHUT_WR)
        assert raw.is_closed(within_s=30)
    assert memory.growth < 120 * MIB


def test_a_connection_that_says_nothing_disturbs_nobody(node: LocalNode, witness: Witness) -> None:
    silent = [Raw(node.kafka) for _ in range(200)]
    halves = [Raw(node.kafka) for _ in range(200)]
    for raw in halves:
        raw.send(b"\x00\x00")
    started = time.monotonic()
    witness.check()
    assert time.monotonic() - started < 3
    for raw in (*silent, *halves):
        raw.socket.close()


def test_a_peer_that_takes_no_answers_is_not_served_without_end(node: LocalNode) -> None:
    """Asks for the same megabytes again and again and reads none of them."""
    with Raw(node.kafka) as raw:
        made = CreatableTopic(name="large", num_partitions=1, replication_factor=1)
        raw.call(CREATE_TOPICS, 5, CreateTopicsRequest(topics=[made]))
        for _ in range(8):
            assert raw.produce("large", bytes(batch_of(b"x" * 1_000_000)))[0] == 0
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=50 * MIB,
        topics=[
            FetchTopic(topic="large", partitions=[FetchPartition(partition_max_bytes=50 * MIB)])
        ],
    )
    data = encoded(FETCH, 11, request)
    with PeakRss(node) as memory, Raw(node.kafka) as raw:
        raw.socket.settimeout(0.5)
        for _ in range(200):
            try:
                raw.socket.sendall(data * 100)
            except TimeoutError:
                break
            except ConnectionError:
                break
        time.sleep(0.3)
    assert memory.growth < 64 * MIB


def test_requests_sent_ahead_without_reading_are_bounded(node: LocalNode) -> None:
    data = framed(header(API_VERSIONS, 0)) * 1_000
    with PeakRss(node) as memory, Raw(node.kafka, receive_bytes=4_096) as raw:
        raw.socket.settimeout(1)
        sent = 0
        try:
            while sent < 20 * MIB:
                raw.socket.sendall(data)
                sent += len(data)
        except (TimeoutError, ConnectionError):
            pass
        assert sent < 20 * MIB
    assert memory.growth < 96 * MIB


def test_connections_that_come_and_go_leave_nothing_behind(node: LocalNode) -> None:
    before = open_files(node)
    for n in range(300):
        raw = Raw(node.kafka)
        raw.send(framed(header(API_VERSIONS, 0))[: n % 18])
        if n % 2:
            raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        raw.socket.close()
    deadline = time.monotonic() + 5
    while open_files(node) > before + 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert open_files(node) <= before + 3


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        "a\\b",
        "a b",
        "a\x00b",
        "a\nb",
        "x" * 250,
        "x" * 32_000,
        "ü",
        "\U0001f600",
        "a~b",
        "%2e%2e",
        "$(id)",
    ],
)
def test_an_illegal_topic_name_is_refused_by_every_verb(node: LocalNode, name: str) -> None:
    with Raw(node.kafka) as raw:
        made = raw.call(
            CREATE_TOPICS,
            5,
            CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
            ),
        )
        assert [topic.error_code for topic in made.topics] == [INVALID_TOPIC]
        found = raw.call(
            METADATA,
            9,
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
            ),
        )
        assert [topic.error_code for topic in found.topics] == [INVALID_TOPIC if name else 3]
        error, _ = raw.produce(name, bytes(batch_of(b"v")))
        assert error in (3, INVALID_TOPIC)
    names = {path.name for path in (node.data_dir / "topics").iterdir()}
    assert all(entry.startswith(("witness~", "large~", "__")) for entry in names), names


@pytest.mark.parametrize("offset", [-1, -(2**63), 2**63 - 1, 2**62])
def test_an_offset_at_the_edge_of_its_type_is_out_of_range(node: LocalNode, offset: int) -> None:
    request = FetchRequest(
        max_wait_ms=10,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic="witness",
                partitions=[FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)],
            )
        ],
    )
    with Raw(node.kafka) as raw:
        answer = raw.call(FETCH, 11, request)
        assert answer.responses[0].partitions[0].error_code == OUT_OF_RANGE


@pytest.mark.parametrize("timestamp", [-6, -100, -(2**63), 2**63 - 1, 0])
def test_a_time_at_the_edge_of_its_type_is_answered(node: LocalNode, timestamp: int) -> None:
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name="witness", partitions=[ListOffsetsPartition(timestamp=timestamp)])
        ],
    )
    with Raw(node.kafka) as raw:
        [part] = raw.call(LIST_OFFSETS, 7, request).topics[0].partitions
        assert part.offset >= -1


@pytest.mark.parametrize("field", ["max_wait_ms", "min_bytes", "max_bytes", "partition"])
@pytest.mark.parametrize("value", [-(2**31), -1, 0, 2**31 - 1])
def test_numbers_of_a_fetch_at_the_edge_of_their_type_are_answered(
    node: LocalNode, field: str, value: int
) -> None:
    part = FetchPartition(partition_max_bytes=1 << 20)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20)
    if field == "partition":
        part.partition = value
    elif field == "max_wait_ms":
        request.max_wait_ms = min(value, 50)  # a wait of weeks is parked, not answered
    else:
        setattr(request, field, value)
    request.topics = [FetchTopic(topic="witness", partitions=[part])]
    with Raw(node.kafka) as raw:
        assert len(raw.call(FETCH, 11, request).responses[0].partitions) == 1


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
