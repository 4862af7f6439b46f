"""docs/reference/formats.md is true: a decoder that knows only that page reads every file."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.formats import decoder
from tests.kit.log import EPOCH, STREAM, TOPIC, Disk

from mainstem.client.producer import Producer
from mainstem.log.cleaning.compaction import CompactionJob, compact
from mainstem.log.range_log import RangeLog, SegmentSettings
from mainstem.log.segments.index import read_index
from mainstem.model.records.batch import TIMESTAMP_TYPE_MASK, stamp
from mainstem.model.records.record import ProducerStamp, Record, build_batch
from mainstem.placement.persistence.journal_storage import JournalStorage
from mainstem.testing.local_node import LocalNode

SMALL = SegmentSettings(segment_bytes=900, index_interval_bytes=300)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "data")


def put(log: RangeLog, records: list[Record], codec: int, flags: int = 0) -> None:
    base = log.written_end
    batch = build_batch(records, codec=codec, flags=flags, producer=ProducerStamp(9, 2, base))
    stamp(batch, 0, base, EPOCH)
    latest = max(record.timestamp for record in records)
    log.append([(memoryview(batch), base, base + len(records), latest)])


def write_ranges(disk: Disk) -> tuple[list[Record], Path]:
    """A sealed range with all codecs, its compacted form, and an open range."""
    expected = []
    log = disk.open(SMALL)
    for number in range(15):
        base = log.written_end
        records = [
            Record(base + place, 1_000 * number + place, b"k%d" % place, b"v" * 10 * number)
            for place in range(3)
        ]
        records.append(Record(base + 3, 5, None, None, (("h", b"1"), ("ü", None))))
        put(log, records, codec=number % 5)
        expected += records
    log.seal()
    [result] = compact(CompactionJob((log.directory,), 0, 60, 10, 0, segment_bytes=900))
    assert result.target is not None
    tail = disk.open(SMALL, index=1, start_offset=60)
    put(tail, [Record(60, 7, b"a", b"b")], codec=0, flags=TIMESTAMP_TYPE_MASK)
    return expected, result.target


def decoded_records(directory: Path) -> list[Record]:
    return [
        Record(*fields)
        for path in sorted(directory.glob("*.log"))
        for batch in decoder.decode(path)
        for fields in batch["records"]
    ]


def test_the_decoder_is_short_and_stands_alone() -> None:
    source = Path(decoder.__file__).read_text()
    assert len(source.splitlines()) <= 150
    assert "mainstem" not in source.lower().replace('b"mainstem"', "")


def test_every_record_is_decoded_whatever_its_codec(disk: Disk) -> None:
    expected, compacted = write_ranges(disk)
    source = compacted.with_name("range-0.g0")
    assert decoded_records(source) == expected
    kept = [record for record in expected if record.offset >= 56 and record.key is not None]
    assert decoded_records(compacted) == kept
    disk.stop()


def test_indexes_headers_and_seals_are_decoded(disk: Disk) -> None:
    write_ranges(disk)
    directory_id = disk.store.directory_id
    disk.stop()
    topic_dir = next((disk.path / "topics").iterdir())
    source = topic_dir / "partition-3" / "range-0.g0"
    for path in source.glob("*.log"):
        summary, index = read_index(path)
        found = decoder.decode(path.with_suffix(".index"))
        assert found["entries"] == list(zip(index.offsets, index.positions, strict=True))
        times = decoder.decode(path.with_suffix(".timeindex"))
        assert times["entries"] == list(zip(index.timestamps, index.time_offsets, strict=True))
        for one in (found, times):
            assert (one["base"], one["until"], one["log_bytes"]) == summary[:3]
            assert (one["max_timestamp"], one["max_timestamp_offset"]) == summary[3:]
    assert decoder.decode(topic_dir / "topic.header") == (TOPIC, "orders")
    assert decoder.decode(source / "range.header") == {
        "topic": TOPIC,
        "partition": STREAM.partition,
        "index": 0,
        "generation": 0,
        "epoch": EPOCH,
        "start": 0,
        "directory": directory_id,
    }
    seal = decoder.decode(source / "range.seal")
    assert (seal["until"], seal["segments"]) == (60, len(list(source.glob("*.log"))))
    assert decoder.decode(source / "opening.snapshot") == b"state of producers"
    mark = decoder.decode(source.with_name("range-0.g1") / "compaction.mark")
    assert mark == {"clean_until": 60, "horizon": -1}
    checkpoint = decoder.decode(disk.path / "log.checkpoint")
    assert checkpoint["clean"]
    assert list(checkpoint["points"].values()) == [[61, 60, seal_size(source.parent)]]
    assert decoder.decode(disk.path / "directory.id") == directory_id


def seal_size(partition: Path) -> int:
    [path] = (partition / "range-1.g0").glob("*.log")
    return path.stat().st_size


def test_the_catalogue_is_decoded(tmp_path: Path) -> None:
    journal = JournalStorage(tmp_path / "catalogue")
    journal.open()
    journal.append_now(b'{"a":1}\n{"b":2}')
    journal.append_now(b'{"c":3}')
    path = tmp_path / "catalogue" / "journal"
    found = decoder.decode(path)
    assert found["frames"] == [[{"a": 1}, {"b": 2}], [{"c": 3}]]
    assert (found["first"], found["durable"]) == (1, path.stat().st_size)
    journal.snapshot_now(b'{"all":[]}')
    journal.append_now(b'{"d":4}')
    journal.close()
    assert decoder.decode(tmp_path / "catalogue" / "snapshot") == {
        "number": 2,
        "state": {"all": []},
    }
    assert decoder.decode(path)["frames"] == [[{"d": 4}]]
    assert decoder.decode(path)["first"] == 3


def test_every_file_of_a_real_node_is_decoded(tmp_path: Path) -> None:
    """Nothing is on disk that the page does not name, and the records are those that were sent."""

    async def produce(address: str) -> None:
        async with Producer(address) as producer:
            for number in range(50):
                await producer.send("orders", b"%d" % number, key=b"k")

    with LocalNode(tmp_path / "data") as node:
        asyncio.run(produce(node.kafka))
        assert node.stop() == 0
        files = [path for path in node.data_dir.rglob("*") if path.is_file()]
        contents = {path: decoder.decode(path) for path in files}
        values = [
            fields[3]
            for path, batches in contents.items()
            if path.suffix == ".log" and path.parts[-4].startswith("orders~")
            for batch in batches
            for fields in batch["records"]
        ]
        printed = subprocess.run(
            [sys.executable, decoder.__file__, str(node.data_dir)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert sorted(values) == sorted(b"%d" % number for number in range(50))
    assert len(printed.splitlines()) == len(files)
    names = {path.name for path in files}
    assert {"node.json", "topic_metadata.json", "journal", "log.checkpoint"} <= names
