"""Record batches that no client would send: refused with an error, never stored, never a crash."""

import gzip
import json
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
import zstandard
from tests.integration.bad_input.wire import FETCH, PeakRss, Raw, batch_of

from mainstem.model.records.batch import HEADER, BatchHeader, read_header
from mainstem.model.records.record import Record, build_batch, records_of, write_header
from mainstem.testing.local_node import LocalNode
from mainstem.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from mainstem.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic

MIB = 1 << 20
CORRUPT, TOO_LARGE, BAD_TIMESTAMP, BAD_FORMAT, BAD_RECORD = 2, 10, 32, 43, 87
REFUSED = {CORRUPT, TOO_LARGE, BAD_TIMESTAMP, BAD_FORMAT, BAD_RECORD, 42, 76}

pytestmark = pytest.mark.usefixtures("witness")


@pytest.fixture(scope="module")
def topics(node: LocalNode) -> None:
    """A plain topic, and those whose rules make the node look into the records."""
    wanted: dict[str, dict[str, str]] = {
        "plain": {},
        "compacted": {"cleanup.policy": "compact"},
        "stamped": {"message.timestamp.type": "LogAppendTime"},
        "recompressed": {"compression.type": "gzip"},
        "bounded": {"message.timestamp.before.max.ms": "3600000"},
    }
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(key, value) for key, value in configs.items()],
            )
            for name, configs in wanted.items()
        ]
    )
    with Raw(node.kafka) as raw:
        assert {topic.error_code for topic in raw.call(19, 5, request).topics} == {0}


def changed(**fields: int) -> bytes:
    """An honest batch with some fields of its header changed and a right checksum."""
    batch = batch_of(b"v")
    write_header(batch, read_header(batch)._replace(**fields))
    return bytes(batch)


def spoilt(at: int, flip: int = 1) -> bytes:
    """An honest batch with one byte changed and the checksum left as it was."""
    batch = batch_of(b"value")
    batch[at] ^= flip
    return bytes(batch)


def with_body(body: bytes, *, codec: int = 0, count: int = 1) -> bytes:
    """A batch whose header is right and whose records are these bytes."""
    batch = bytearray(61) + body
    now_ms = int(time.time() * 1000)
    write_header(
        batch,
        BatchHeader(
            0, len(batch) - 12, -1, 2, 0, codec, count - 1, now_ms, now_ms, -1, -1, -1, count
        ),
    )
    return bytes(batch)


BAD: dict[str, tuple[bytes, set[int]]] = {
    "nothing": (b"", REFUSED),
    "one byte": (b"\x00", REFUSED),
    "a header that is cut": (bytes(batch_of(b"v"))[:60], REFUSED),
    "a batch that is cut": (bytes(batch_of(b"v"))[:-1], REFUSED),
    "a byte too many": (bytes(batch_of(b"v")) + b"\x00", REFUSED),
    "two batches": (bytes(batch_of(b"v")) * 2, {BAD_RECORD}),
    "a flipped byte in the records": (spoilt(-1), {CORRUPT}),
    "a flipped byte in the checksum": (spoilt(17), {CORRUPT}),
    "a flipped byte in the attributes": (spoilt(22), {CORRUPT}),
    "format 0": (spoilt(16, 2), {BAD_FORMAT}),
    "format 1": (spoilt(16, 3), {BAD_FORMAT}),
    "a length of -1": (struct.pack(">qi", 0, -1) + bytes(batch_of(b"v"))[12:], REFUSED),
    "a length of 2^31-1": (struct.pack(">qi", 0, 2**31 - 1) + bytes(batch_of(b"v"))[12:], REFUSED),
    "a control batch": (changed(attributes=0x20), {BAD_RECORD}),
    "no records": (changed(record_count=0, last_offset_delta=-1), {BAD_RECORD}),
    "-1 records": (changed(record_count=-1), {BAD_RECORD}),
    "2^31-1 records": (changed(record_count=2**31 - 1), {BAD_RECORD}),
    "an offset delta that does not fit": (changed(last_offset_delta=5), {BAD_RECORD}),
    "a time at 2^63-1": (
        changed(max_timestamp=2**63 - 1, base_timestamp=2**63 - 1),
        {BAD_TIMESTAMP},
    ),
}

INNER: dict[str, bytes] = {
    "records that are noise": with_body(b"\xff" * 40),
    "a record of 2^31 bytes": with_body(b"\x80\x80\x80\x80\x10" + b"\x00" * 10),
    "a record of -1 bytes": with_body(b"\x01" + b"\x00" * 10),
    "a number without an end": with_body(b"\x80" * 30),
    "a key of 2^31 bytes": with_body(b"\x14\x00\x00\x00\x80\x80\x80\x80\x10\x00\x00"),
    "2^31 headers": with_body(b"\x14\x00\x00\x00\x02k\x02v\x80\x80\x80\x80\x10"),
    "more records than bytes": with_body(b"\x0e\x00\x00\x00\x02k\x02v\x00", count=1_000_000),
    "bytes after the records": with_body(bytes(batch_of(b"v"))[61:] + b"\x00" * 9),
    "gzip that is noise": with_body(b"\x1f\x8b" + b"\xff" * 40, codec=1),
    "snappy that is noise": with_body(b"\xff" * 40, codec=2),
    "lz4 that is noise": with_body(b"\x04\x22\x4d\x18" + b"\xff" * 40, codec=3),
    "zstd that is noise": with_body(b"\x28\xb5\x2f\xfd" + b"\xff" * 40, codec=4),
    "an unknown codec": with_body(b"\x00" * 20, codec=7),
    "gzip that is cut": with_body(gzip.compress(bytes(batch_of(b"v"))[61:])[:-9], codec=1),
}


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("topic", ["plain", "compacted"])
@pytest.mark.parametrize("name", BAD)
def test_a_batch_that_is_not_sound_is_refused(node: LocalNode, topic: str, name: str) -> None:
    batch, expected = BAD[name]
    with Raw(node.kafka) as raw:
        end = ends(raw, topic)
        error, offset = raw.produce(topic, batch)
        assert error in expected, error
        assert offset == -1
        assert ends(raw, topic) == end


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("name", INNER)
def test_records_that_are_not_sound_are_refused_where_the_node_looks_at_them(
    node: LocalNode, name: str
) -> None:
    with Raw(node.kafka) as raw:
        for topic in ("compacted", "recompressed", "bounded"):
            if topic == "recompressed" and "gzip" in name:
                continue  # it comes in the topic's own codec and is stored as it stands
            error, _ = raw.produce(topic, INNER[name])
            assert error in REFUSED, (topic, error)


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("name", sorted(set(INNER) - {"bytes after the records"}))
def test_records_that_nobody_looked_at_are_corrupt_for_readers_and_nothing_worse(
    node: LocalNode, name: str
) -> None:
    with Raw(node.kafka) as raw:
        error, offset = raw.produce("plain", INNER[name])
        if error:
            assert error in REFUSED
            return
        data = fetched(raw, "plain", offset)
        assert data[8:] != b""
    url = f"http://{node.http}/v1/topics/plain/messages?offset={offset}&limit=1"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(url, timeout=10)
    assert refused.value.code == 500
    assert json.load(refused.value)["code"] == "CORRUPT"
    refused.value.close()


def gzip_bomb() -> bytes:
    return gzip.compress(bytes(900 * MIB), 9)


def zstd_bomb() -> bytes:
    return zstandard.ZstdCompressor(level=3).compress(bytes(1024 * MIB))


def zstd_liar() -> bytes:
    """A frame that claims 2^60 bytes."""
    return b"\x28\xb5\x2f\xfd\xe0" + (2**60).to_bytes(8, "little") + b"\x01\x00\x00"


def snappy_liar() -> bytes:
    """A block that claims 2^32-1 bytes."""
    return b"\xff\xff\xff\xff\x0f" + b"\x00" * 20


def lz4_liar() -> bytes:
    """A frame that claims 2^60 bytes, with a right header checksum byte or not."""
    return b"\x04\x22\x4d\x18\x68\x70" + (2**60).to_bytes(8, "little") + b"\x00" + b"\xff" * 20


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize(
    ("codec", "make"),
    [(1, gzip_bomb), (4, zstd_bomb), (4, zstd_liar), (2, snappy_liar), (3, lz4_liar)],
    ids=["gzip", "zstd", "zstd that lies", "snappy that lies", "lz4 that lies"],
)
def test_a_batch_that_unpacks_to_a_flood_is_refused_within_bounds(
    node: LocalNode, codec: int, make: Callable[[], bytes]
) -> None:
    bomb = with_body(make(), codec=codec)
    assert len(bomb) < MIB
    for topic in ("compacted",) if codec == 1 else ("compacted", "recompressed"):
        with PeakRss(node) as memory, Raw(node.kafka, timeout_s=30) as raw:
            error, _ = raw.produce(topic, bomb)
        assert error in REFUSED
        assert memory.growth < 320 * MIB, memory.growth // MIB


@pytest.mark.usefixtures("topics")
def test_a_batch_over_the_topics_limit_is_refused(node: LocalNode) -> None:
    with Raw(node.kafka) as raw:
        error, _ = raw.produce("plain", bytes(batch_of(b"x" * 2 * MIB)))
        assert error == TOO_LARGE


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 1])
def test_the_offset_that_a_client_wrote_is_not_looked_at(node: LocalNode, base_offset: int) -> None:
    batch = bytearray(batch_of(b"v"))
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(base_offset=base_offset))
    with Raw(node.kafka) as raw:
        end = ends(raw, "plain")
        assert raw.produce("plain", bytes(batch)) == (0, end)


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("timestamp", [-1, -(2**63), 0])
def test_an_old_time_is_stored_and_found(node: LocalNode, timestamp: int) -> None:
    batch = build_batch([Record(0, timestamp, b"k", b"v")])
    with Raw(node.kafka) as raw:
        error, offset = raw.produce("plain", bytes(batch))
        if error:
            assert error in REFUSED
            return
        data = fetched(raw, "plain", offset)
        [record] = records_of(memoryview(data)[: read_header(data).size])
        assert record.timestamp == timestamp


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("producer_id", [2**63 - 1, -(2**63), -2])
@pytest.mark.parametrize("sequence", [-1, 2**31 - 1, -(2**31)])
def test_a_producer_id_or_sequence_at_the_edge_is_answered(
    node: LocalNode, producer_id: int, sequence: int
) -> None:
    batch = changed(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    with Raw(node.kafka) as raw:
        raw.produce("plain", batch)
        assert raw.produce("plain", bytes(batch_of(b"v")))[0] == 0


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("partition", [1, -1, 2**31 - 1, -(2**31)])
def test_a_partition_that_is_not_there_is_unknown(node: LocalNode, partition: int) -> None:
    with Raw(node.kafka) as raw:
        assert raw.produce("plain", bytes(batch_of(b"v")), partition=partition)[0] == 3


@pytest.mark.usefixtures("topics")
@pytest.mark.parametrize("acks", [2, -2, 32767, -32768])
def test_acks_that_do_not_exist_are_refused(node: LocalNode, acks: int) -> None:
    with Raw(node.kafka) as raw:
        assert raw.produce("plain", bytes(batch_of(b"v")), acks=acks)[0] == 21


@pytest.mark.usefixtures("topics")
def test_the_bytes_of_one_topic_never_show_up_in_another(node: LocalNode) -> None:
    """Receive buffers are shared: a refused or cut batch must not leak into the next one."""
    secret = b"secret" * 10_000
    with Raw(node.kafka) as raw:
        raw.produce("plain", spoilt(-1) + secret)
        cut = bytes(batch_of(secret))
        raw.send((len(cut) + 100).to_bytes(4, "big") + cut[: len(cut) // 2])
    with Raw(node.kafka) as raw:
        error, offset = raw.produce("stamped", bytes(batch_of(b"public")))
        assert error == 0
        assert secret not in fetched(raw, "stamped", offset)


def ends(raw: Raw, topic: str) -> int:
    """The offset after the last record."""
    return int(_fetch(raw, topic, 0).high_watermark)


def fetched(raw: Raw, topic: str, offset: int) -> bytes:
    """The batches from ``offset`` on, as a client gets them."""
    return bytes(_fetch(raw, topic, offset).records)


def _fetch(raw: Raw, topic: str, offset: int) -> Any:
    part = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )
    return raw.call(FETCH, 11, request).responses[0].partitions[0]
