"""Stories of the single writer of a stream, on real files."""

from pathlib import Path

import pytest
from tests.kit.stream_writer import STREAM_ID, SingleStream

from mainstem.model.config.topic import topic_settings
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError
from mainstem.model.ids import Epoch, NodeId, Offset, RangeIndex
from mainstem.model.metadata import Range, Stream
from mainstem.model.records.record import ProducerStamp, Record, build_batch, records_of
from mainstem.streams.failover.state_recovery import range_log


@pytest.fixture
def written(tmp_path: Path) -> SingleStream:
    return SingleStream(tmp_path, {"flush.policy": "written"})


async def test_readers_see_nothing_before_it_is_synced(tmp_path: Path) -> None:
    stream = SingleStream(tmp_path, {})
    settled: list[MainstemError | None] = []
    base = stream.write(b"a", b"b")
    assert stream.values() == []
    assert not stream.writer.when_written(Offset(base), settled.append)

    await stream.sync()

    assert settled == [None]
    assert stream.values() == [b"a", b"b"]


def test_with_policy_written_a_record_is_committed_by_its_write(written: SingleStream) -> None:
    woken: list[int] = []
    written.writer.add_waiter(lambda: woken.append(written.writer.committed))

    written.write(b"a")

    assert woken == [1]
    assert written.values() == [b"a"]


def test_the_folder_of_a_range_lasts_before_anything_in_it_counts(written: SingleStream) -> None:
    held: list[object] = []
    written.flusher.sync = held.append

    written.write(b"a")

    assert held == [written.writer.log]
    assert written.values() == []


def test_several_batches_of_one_burst_are_written_once(written: SingleStream) -> None:
    batches = [build_batch([Record(0, 1, None, bytes([n]))] * 2) for n in range(3)]
    bases = [written.writer.stage(memoryview(b), 0, len(b)) for b in batches]
    assert written.writer.committed == 0

    written.flusher.flush()

    assert bases == [0, 2, 4]
    assert written.values() == [b"\0", b"\0", b"\1", b"\1", b"\2", b"\2"]


def test_batches_carry_offset_and_epoch_of_the_stream(written: SingleStream) -> None:
    written.write(b"a")
    written.write(b"b")

    part = written.writer.read(1, max_bytes=10**6, committed_only=False, min_one=True)
    assert part is not None
    data = part.read()
    assert int.from_bytes(data[0:8], "big") == 1
    assert int.from_bytes(data[12:16], "big") == 3


def test_a_repeated_batch_is_stored_once(written: SingleStream) -> None:
    stamp = ProducerStamp(9, 0, 0)
    first = written.write(b"a", b"b", producer=stamp)

    again = written.write(b"a", b"b", producer=stamp)

    assert again == first
    assert written.values() == [b"a", b"b"]


@pytest.mark.parametrize("at", [8, 16, 17, 22, 24, 57, 60, 61, -1])
def test_a_damaged_batch_is_refused_and_changes_nothing(written: SingleStream, at: int) -> None:
    batch = build_batch([Record(0, 1, b"k", b"value")])
    batch[at] ^= 0x5A

    with pytest.raises((Corrupt, InvalidRequest)):
        written.writer.stage(memoryview(batch), 0, len(batch))

    written.flusher.flush()
    assert written.writer.next_offset == 0
    assert written.write(b"ok") == 0


def test_reading_past_the_end_is_out_of_range(written: SingleStream) -> None:
    written.write(b"a")

    assert written.writer.read(1, max_bytes=1, committed_only=False, min_one=True) is None
    with pytest.raises(InvalidRequest) as caught:
        written.writer.read(2, max_bytes=1, committed_only=False, min_one=True)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_next_range_takes_appends_at_once_and_commits_once_it_is_known(
    written: SingleStream,
) -> None:
    written.write(b"a")
    writer = written.writer
    following = Range(RangeIndex(1), Offset(1), Epoch(3), (NodeId(1),))
    new = range_log(written.store, written.topic, written.facts, following, written.settings)

    writer.begin_range(new)
    written.write(b"b")
    assert written.values() == [b"a"]
    first = Range(RangeIndex(0), Offset(0), Epoch(3), (NodeId(1),), end=Offset(1))
    writer.range_known(Stream(STREAM_ID, Epoch(3), NodeId(1), Offset(0), (first, following)))

    assert written.values() == [b"a", b"b"]
    assert writer.committed == 2


def test_a_compacted_topic_refuses_records_without_a_key(tmp_path: Path) -> None:
    stream = SingleStream(tmp_path, {"cleanup.policy": "compact"})
    batch = build_batch([Record(0, 1, None, b"v")])

    with pytest.raises(InvalidRequest) as caught:
        stream.writer.stage(memoryview(batch), 0, len(batch))
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_log_append_time_stamps_the_nodes_clock(tmp_path: Path) -> None:
    stream = SingleStream(
        tmp_path, {"message.timestamp.type": "LogAppendTime", "flush.policy": "written"}
    )
    batch = build_batch([Record(0, 5, b"k", b"v")])
    stream.writer.stage(memoryview(batch), 0, len(batch))
    stream.flusher.flush()

    part = stream.writer.read(0, max_bytes=10**6, committed_only=False, min_one=True)
    assert part is not None
    [record] = records_of(part.read())
    assert record.timestamp == stream.clock.now_ms
    assert stream.writer.append_time_ms == stream.clock.now_ms


def test_who_stamps_the_time_is_known_as_soon_as_the_topic_is_configured(tmp_path: Path) -> None:
    stream = SingleStream(tmp_path, {"flush.policy": "written"})
    stamped_here = topic_settings({"message.timestamp.type": "LogAppendTime"})
    stamped_there = topic_settings({"message.timestamp.type": "CreateTime"})

    stream.writer.apply_settings(stamped_here)
    assert stream.writer.append_time_ms == stream.clock.now_ms

    batch = build_batch([Record(0, 5, b"k", b"v")])
    stream.writer.stage(memoryview(batch), 0, len(batch))
    stream.flusher.flush()
    stream.writer.apply_settings(stamped_there)
    assert stream.writer.append_time_ms == -1


@pytest.mark.parametrize("codec", [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)])
def test_a_topic_with_a_codec_stores_in_it(tmp_path: Path, codec: tuple[str, int]) -> None:
    stream = SingleStream(tmp_path, {"compression.type": codec[0], "flush.policy": "written"})

    stream.write(b"a" * 1000, b"b" * 1000, producer=ProducerStamp(4, 1, 0))

    part = stream.writer.read(0, max_bytes=10**6, committed_only=False, min_one=True)
    assert part is not None
    data = part.read()
    assert data[22] & 7 == codec[1]
    assert [r.value for r in records_of(data)] == [b"a" * 1000, b"b" * 1000]


def test_a_batch_over_the_topics_limit_is_refused(tmp_path: Path) -> None:
    stream = SingleStream(tmp_path, {"max.message.bytes": "200"})

    with pytest.raises(InvalidRequest) as caught:
        stream.write(b"x" * 200)
    assert caught.value.code is ErrorCode.RECORD_TOO_LARGE


def test_a_timestamp_far_in_the_future_is_refused(written: SingleStream) -> None:
    batch = build_batch([Record(0, written.clock.now_ms + 2 * 3600 * 1000, b"k", b"v")])

    with pytest.raises(InvalidRequest) as caught:
        written.writer.stage(memoryview(batch), 0, len(batch))
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_closed_stream_answers_those_who_wait(tmp_path: Path) -> None:
    stream = SingleStream(tmp_path, {})
    settled: list[MainstemError | None] = []
    base = stream.write(b"a")
    stream.writer.when_written(Offset(base), settled.append)
    gone = InvalidRequest(ErrorCode.UNKNOWN_TOPIC)

    stream.writer.close(gone)

    assert settled == [gone]
    with pytest.raises(InvalidRequest):
        stream.write(b"b")
