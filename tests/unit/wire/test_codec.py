"""The Kafka codec against kio as oracle, against itself, and against bytes that lie."""

import importlib
import io
import random
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstem.wire.kafka import codec
from mainstem.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from mainstem.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    SubscriptionTopicPartition,
)
from mainstem.wire.kafka.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from mainstem.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from mainstem.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from mainstem.wire.kafka.primitives import decode_uvarint, encode_uvarint
from mainstem.wire.kafka.samples import draw_message
from mainstem.wire.kafka.schema import load_api

ROOT = Path(__file__).parents[3]
PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
CODECS = [
    pytest.param(key, version, is_request, id=f"{codec.NAMES[key]}-{version}-{direction}")
    for key, (first, last) in codec.VERSIONS.items()
    for version in range(first, last + 1)
    for direction, is_request in (("request", True), ("response", False))
]


def join(chunks: list[Any]) -> bytes:
    return b"".join(chunks)


def encode(key: int, version: int, message: Any, *, is_request: bool) -> bytes:
    encoder = codec.encode_request if is_request else codec.encode_response
    return join(encoder(key, version, message))


def decode(key: int, version: int, data: bytes, *, is_request: bool) -> Any:
    decoder = codec.decode_request if is_request else codec.decode_response
    return decoder(key, version, data, 0, len(data))


def make_plausible(message: Any) -> None:
    """kio refuses error codes it does not know and times that Python dates cannot hold."""
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name.endswith("error_code"):
            setattr(message, name, abs(value) % 100)
        elif name.endswith("_ms"):
            setattr(message, name, abs(value) % 10**9)
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, msgspec.Struct):
                make_plausible(part)


@pytest.mark.parametrize(("key", "version", "is_request"), CODECS)
def test_a_message_survives_the_round_trip(key: int, version: int, is_request: bool) -> None:
    chance = random.Random(f"{key} {version} {is_request}")
    plan = load_api(key, version, is_request=is_request)
    for _ in range(10):
        message = draw_message(plan, chance)
        data = encode(key, version, message, is_request=is_request)
        assert decode(key, version, data, is_request=is_request) == message


@pytest.mark.parametrize(("key", "version", "is_request"), CODECS)
def test_kio_reads_and_writes_the_same_bytes(key: int, version: int, is_request: bool) -> None:
    serial = pytest.importorskip("kio.serial")
    index = importlib.import_module("kio.schema.index")
    kinds = importlib.import_module("kio.static.constants").EntityType
    kind = kinds.request if is_request else kinds.response
    path = index.schema_name_map[index.api_key_map[key]][version][kind]
    module, _, name = path.partition(":")
    entity = getattr(importlib.import_module(module), name)
    chance = random.Random(f"kio {key} {version} {is_request}")
    plan = load_api(key, version, is_request=is_request)
    for _ in range(5):
        message = draw_message(plan, chance)
        make_plausible(message)
        ours = encode(key, version, message, is_request=is_request)
        theirs, size = serial.entity_reader(entity)(ours, 0)
        again = io.BytesIO()
        serial.entity_writer(entity)(again, theirs)
        assert size == len(ours)
        assert again.getvalue() == ours


@pytest.mark.parametrize(("key", "version", "is_request"), CODECS)
def test_header_versions_are_those_of_kio(key: int, version: int, is_request: bool) -> None:
    pytest.importorskip("kio")
    index = importlib.import_module("kio.schema.index")
    kinds = importlib.import_module("kio.static.constants").EntityType
    kind = kinds.request if is_request else kinds.response
    module, _, name = index.schema_name_map[index.api_key_map[key]][version][kind].partition(":")
    entity = getattr(importlib.import_module(module), name)
    ours = codec.request_header_version if is_request else codec.response_header_version
    assert ours(key, version) == entity.__header_schema__.__version__


def test_the_table_holds_every_client_facing_api() -> None:
    # WriteTxnMarkers (27) is for brokers, too, but administrators abort hanging transactions by it.
    between_brokers = {4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)}
    assert set(codec.NAMES) == set(range(93)) - between_brokers
    assert len(codec.NAMES) == 72


def test_the_generated_files_are_what_the_generator_writes() -> None:
    pytest.importorskip("kio")
    command = [sys.executable, str(ROOT / "codegen" / "kafka_schema.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


def test_fields_of_other_versions_take_their_defaults() -> None:
    new = ProduceRequest(topic_data=[TopicProduceData(topic_id=b"i" * 16, name="n")])
    old = decode(PRODUCE, 7, encode(PRODUCE, 7, new, is_request=True), is_request=True)
    assert old.topic_data[0].topic_id == bytes(16)
    assert old.topic_data[0].name == "n"


def test_records_decode_as_a_view_into_the_input() -> None:
    message = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(0, b"batch")])]
    )
    data = bytearray(encode(PRODUCE, 7, message, is_request=True))
    found = codec.decode_request(PRODUCE, 7, data, 0, len(data))
    records = found.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data
    assert bytes(records) == b"batch"


class FileSlice:
    """Stands for bytes that never enter the process."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def test_whatever_has_a_length_can_be_records_and_stays_one_chunk() -> None:
    first, second = FileSlice(1000), FileSlice(7)
    partitions = [
        PartitionData(partition_index=0, records=first),
        PartitionData(partition_index=1, records=None),
        PartitionData(partition_index=2, records=b""),
        PartitionData(partition_index=3, records=second),
    ]
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])

    chunks = codec.encode_response_frame(FETCH, 13, 99, message)

    assert [type(chunk) for chunk in chunks] == [bytes, FileSlice, bytes, FileSlice, bytes]
    assert chunks[1] is first
    data = join([bytes(len(c)) if isinstance(c, FileSlice) else c for c in chunks])
    assert struct.unpack_from(">ii", data) == (len(data) - 4, 99)
    correlation_id, body = codec.decode_response_header(FETCH, 13, data, 4, len(data))
    found = codec.decode_response(FETCH, 13, data, body, len(data))
    sizes = [p.records and len(p.records) for p in found.responses[0].partitions]
    assert (correlation_id, sizes[0], sizes[1], sizes[3]) == (99, 1000, None, 7)
    assert sizes[2] is not None


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "名"])
@pytest.mark.parametrize(("key", "version"), [(PRODUCE, 7), (PRODUCE, 10), (API_VERSIONS, 3)])
def test_a_request_frame_is_read_back(key: int, version: int, client_id: str | None) -> None:
    message = ApiVersionsRequest() if key == API_VERSIONS else ProduceRequest(acks=1)
    frame = join(codec.encode_request_frame(key, version, 5, client_id, message))
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    *head, body = codec.decode_request_header(frame, 4, len(frame))
    assert head == [key, version, 5, client_id]
    assert codec.decode_request(key, version, frame, body, len(frame)) == message


def test_an_unknown_api_still_has_a_readable_header() -> None:
    data = struct.pack(">hhih", 9999, 3, 12, 2) + b"me" + b"\xff\xff"
    assert codec.decode_request_header(data, 0, len(data)) == (9999, 3, 12, "me", 12)


def test_a_too_new_version_of_api_versions_has_a_readable_header() -> None:
    data = struct.pack(">hhih", API_VERSIONS, 99, 12, 2) + b"me" + b"\0" + b"body"
    assert codec.decode_request_header(data, 0, len(data)) == (API_VERSIONS, 99, 12, "me", 13)


def test_api_versions_answers_without_a_flexible_header() -> None:
    frame = join(codec.encode_response_frame(API_VERSIONS, 4, 1, ApiVersionsResponse()))
    assert codec.response_header_version(API_VERSIONS, 4) == 0
    assert codec.decode_response_header(API_VERSIONS, 4, frame, 4, len(frame)) == (1, 8)


def test_unknown_tagged_fields_are_skipped() -> None:
    plain = encode(METADATA, 12, MetadataRequest(topics=None), is_request=True)
    tagged = plain[:-1] + b"\x02" + b"\x05\x03abc" + b"\xc8\x01\x00"
    assert decode(METADATA, 12, tagged, is_request=True) == MetadataRequest(topics=None)


def test_header_tags_are_skipped() -> None:
    data = struct.pack(">hhih", METADATA, 12, 1, -1) + b"\x01\x07\x02hi" + b"body"
    assert codec.decode_request_header(data, 0, len(data)) == (METADATA, 12, 1, None, 15)


MALFORMED = {
    "an endless varint count": (METADATA, 12, "ff ff ff ff 7f"),
    "a varint of six bytes": (METADATA, 12, "ff ff ff ff ff 01"),
    "nothing at all": (METADATA, 12, ""),
    "a count of 2^31-1": (METADATA, 4, "7f ff ff ff" + "00" * 16),
    "a name beyond the end": (METADATA, 4, "00 00 00 01 00 09 61 01"),
    "a null that may not be": (METADATA, 4, "00 00 00 01 ff ff 01"),
    "bad UTF-8": (METADATA, 4, "00 00 00 01 00 02 c3 28 01"),
    "half a surrogate": (METADATA, 4, "00 00 00 01 00 03 ed a0 80 01"),
    "too many tags": (METADATA, 12, "00 01 00 ff ff ff ff 0f"),
    "a tag beyond the end": (METADATA, 12, "00 01 00 01 05 7f"),
    "an unknown version": (METADATA, 99, "00"),
    "an unknown api": (9999, 0, "00"),
}


@pytest.mark.parametrize(("key", "version", "text"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_request_is_refused(key: int, version: int, text: str) -> None:
    with pytest.raises(codec.Malformed):
        decode(key, version, bytes.fromhex(text), is_request=True)


def test_a_request_that_would_need_its_neighbours_bytes_is_refused() -> None:
    data = encode(
        METADATA, 4, MetadataRequest(topics=[MetadataRequestTopic(name="abc")]), is_request=True
    )
    for until in range(len(data)):
        with pytest.raises(codec.Malformed):
            codec.decode_request(METADATA, 4, data, 0, until)


def test_a_tagged_field_may_not_claim_another_size_than_it_has() -> None:
    whole = encode(
        API_VERSIONS, 4, ApiVersionsResponse(finalized_features_epoch=7), is_request=False
    )
    assert b"\x01\x08" in whole  # tag 1, eight bytes
    with pytest.raises(codec.Malformed):
        decode(API_VERSIONS, 4, whole.replace(b"\x01\x08", b"\x01\x07") + b"", is_request=False)


@pytest.mark.parametrize(("key", "version", "is_request"), CODECS)
def test_every_truncation_is_refused(key: int, version: int, is_request: bool) -> None:
    chance = random.Random(f"cut {key} {version} {is_request}")
    plan = load_api(key, version, is_request=is_request)
    data = encode(key, version, draw_message(plan, chance), is_request=is_request)
    for until in range(0, len(data), 1 + len(data) // 50):
        with pytest.raises(codec.Malformed):
            decode(key, version, data[:until], is_request=is_request)


@pytest.mark.parametrize(("key", "version", "is_request"), CODECS)
def test_a_claimed_count_costs_no_memory(key: int, version: int, is_request: bool) -> None:
    decode_or_refuse(key, version, is_request, b"\x01" * 4)  # compiled before measuring
    tracemalloc.start()
    try:
        for filler in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x7f"):
            for lead in range(16):
                decode_or_refuse(key, version, is_request, bytes(lead) + filler * 4)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000


def decode_or_refuse(key: int, version: int, is_request: bool, data: bytes) -> None:
    try:
        decode(key, version, data, is_request=is_request)
    except codec.Malformed:
        return


def test_elements_are_bounded_over_the_whole_message() -> None:
    count = codec.REQUEST_ELEMENTS_MAX
    fits = struct.pack(">i", count) + b"\0\0" * count + b"\x01"
    more = struct.pack(">i", count + 1) + b"\0\0" * (count + 1) + b"\x01"
    assert len(decode(METADATA, 4, fits, is_request=True).topics) == count
    with pytest.raises(codec.Malformed):
        decode(METADATA, 4, more, is_request=True)


def test_unknown_tags_count_as_elements() -> None:
    count = codec.REQUEST_ELEMENTS_MAX

    def with_tags(number: int) -> bytes:
        return b"\0\1\0" + encode_uvarint(number) + b"\x63\0" * number

    assert decode(METADATA, 12, with_tags(count), is_request=True).topics is None
    with pytest.raises(codec.Malformed):
        decode(METADATA, 12, with_tags(count + 1), is_request=True)


@pytest.mark.parametrize(
    "message",
    [
        MetadataRequest(topics=[MetadataRequestTopic(name="x" * 40_000)]),
        MetadataRequest(topics=[MetadataRequestTopic(name=None)]),
        MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")]),
    ],
)
def test_what_the_version_cannot_carry_is_refused(message: MetadataRequest) -> None:
    with pytest.raises(codec.Unencodable):
        codec.encode_request(METADATA, 4, message)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**31 - 1, 2**35 - 1])
def test_a_varint_survives_the_round_trip(number: int) -> None:
    data = encode_uvarint(number)
    assert decode_uvarint(b"x" + data, 1) == (number, 1 + len(data))


def test_a_varint_of_more_than_five_bytes_is_refused_however_small() -> None:
    with pytest.raises(codec.Malformed):
        decode_uvarint(b"\x80\x80\x80\x80\x80\x00", 0)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_subscription_travels_with_its_version(version: int) -> None:
    owned = [SubscriptionTopicPartition("t", [1, 2])] if version >= 1 else []
    message = ConsumerProtocolSubscription(["t"], b"u", owned)
    data = codec.encode_data("ConsumerProtocolSubscription", version, message)
    assert codec.decode_data("ConsumerProtocolSubscription", 3, data) == (version, message)


def test_a_newer_subscription_is_read_as_the_newest_known_one() -> None:
    message = ConsumerProtocolSubscription(["t"], None)
    data = codec.encode_data("ConsumerProtocolSubscription", 3, message)
    version, found = codec.decode_data(
        "ConsumerProtocolSubscription", 3, struct.pack(">h", 7) + data[2:] + b"more"
    )
    assert (version, found) == (7, message)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\0\0\0\0\5", b"\xff\xff\0\0\0\0"])
def test_a_malformed_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(codec.Malformed):
        codec.decode_data("ConsumerProtocolSubscription", 3, data)


def test_bytes_after_the_last_field_of_a_request_are_let_pass() -> None:
    """librdkafka writes the null list of topics in flexible Metadata as four bytes."""
    request = codec.decode_request(3, 4, bytes.fromhex("00 00 00 00 01 ff"), 0, 6)

    assert request.topics == []
