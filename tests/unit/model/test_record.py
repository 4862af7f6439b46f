"""Single records of v2 batches."""

import pytest
from aiokafka.record.memory_records import MemoryRecords

from mainstem.model.errors import Corrupt
from mainstem.model.records.batch import (
    CONTROL_MASK,
    HEADER_BYTES,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    check_produced,
    read_header,
    stamp,
)
from mainstem.model.records.record import (
    ProducerStamp,
    Record,
    batches_of,
    build_batch,
    encode_record,
    records_of,
    write_header,
)

RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", (("h", b"1"), ("none", None))),
    Record(1, 1_700_000_000_123, None, b"", ()),
    Record(2, 1_699_999_999_000, b"", None, (("ü", b"x" * 300),)),
    Record(3, 1_700_000_500_000, b"k" * 200, b"v" * 20_000, ()),
]


@pytest.mark.parametrize("codec", range(5))
def test_records_come_back_as_they_were(codec: int) -> None:
    batch = build_batch(RECORDS, codec=codec)
    assert list(records_of(batch)) == RECORDS


@pytest.mark.parametrize("codec", range(5))
def test_a_built_batch_passes_the_check_of_produced_batches(codec: int) -> None:
    batch = build_batch(RECORDS, codec=codec)
    header = check_produced(memoryview(batch), 0, len(batch))
    assert header.record_count == len(RECORDS)
    assert header.compression == codec
    assert header.base_timestamp == RECORDS[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in RECORDS)


@pytest.mark.parametrize("codec", range(5))
def test_a_client_library_reads_a_built_batch(codec: int) -> None:
    batch = build_batch(RECORDS, codec=codec)
    stamp(batch, 0, 70, 3)
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs is not None
    assert theirs.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value) for r in theirs] == [
        (70 + r.offset, r.timestamp, r.key, r.value) for r in RECORDS
    ]


def test_offsets_follow_the_stamp_of_the_batch() -> None:
    batch = build_batch(RECORDS)
    stamp(batch, 0, 1_000, 7)
    assert [record.offset for record in records_of(batch)] == [1000, 1001, 1002, 1003]


def test_append_time_overrides_the_time_of_every_record() -> None:
    batch = build_batch(RECORDS, flags=TIMESTAMP_TYPE_MASK)
    latest = max(record.timestamp for record in RECORDS)
    assert {record.timestamp for record in records_of(batch)} == {latest}


def test_producer_and_flags_land_in_the_header() -> None:
    batch = build_batch(
        RECORDS,
        flags=TRANSACTIONAL_MASK | CONTROL_MASK,
        producer=ProducerStamp(9, 2, 55),
        base_timestamp=5,
    )
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 55)
    assert header.is_control
    assert header.is_transactional
    assert header.base_timestamp == 5
    assert list(records_of(batch)) == RECORDS


def test_gaps_that_compaction_leaves_are_kept() -> None:
    whole = build_batch(RECORDS)
    header = read_header(whole)
    kept = bytearray(HEADER_BYTES)
    bodies = build_batch(RECORDS[3:])  # offset delta 0 in there ...
    kept += bodies[HEADER_BYTES:]
    place = kept.index(b"\x90\x03" + b"k" * 200) - 1
    kept[place] = 3 << 1  # ... becomes 3
    write_header(
        kept,
        header._replace(length=len(kept) - 12, record_count=1, base_timestamp=RECORDS[3].timestamp),
    )
    assert list(records_of(kept)) == [RECORDS[3]]


def test_an_emptied_batch_has_no_records() -> None:
    header = read_header(build_batch(RECORDS))
    empty = bytearray(HEADER_BYTES)
    write_header(empty, header._replace(length=HEADER_BYTES - 12, record_count=0))
    assert list(records_of(empty)) == []


@pytest.mark.parametrize("codec", range(5))
def test_any_flipped_byte_after_the_stamp_is_corrupt(codec: int) -> None:
    batch = build_batch(RECORDS[:3], codec=codec)
    for place in range(16, len(batch)):
        damaged = bytearray(batch)
        damaged[place] ^= 0x10
        with pytest.raises(Corrupt):
            list(records_of(damaged))


@pytest.mark.parametrize("codec", [0, 4])
def test_damage_under_a_valid_checksum_is_corrupt_or_another_record_but_never_a_crash(
    codec: int,
) -> None:
    batch = build_batch(RECORDS[:3], codec=codec)
    for place in range(21, len(batch)):
        for flip in (0x01, 0x40, 0x80, 0xFF):
            damaged = bytearray(batch)
            damaged[place] ^= flip
            write_header(damaged, read_header(damaged))
            try:
                list(records_of(damaged, limit_bytes=1 << 20))
            except Corrupt:
                continue


@pytest.mark.parametrize("codec", range(5))
def test_every_cut_is_corrupt(codec: int) -> None:
    batch = build_batch(RECORDS[:3], codec=codec)
    for size in range(len(batch)):
        with pytest.raises(Corrupt):
            list(records_of(batch[:size]))


def test_a_batch_that_unpacks_beyond_the_limit_is_corrupt() -> None:
    batch = build_batch([Record(0, 0, None, bytes(1 << 20))], codec=4)
    with pytest.raises(Corrupt):
        list(records_of(batch, limit_bytes=1 << 19))


def test_batches_of_an_answer_leave_a_cut_last_one_out() -> None:
    one = build_batch(RECORDS)
    two = build_batch(RECORDS[:1])
    answer = bytes(one + two)
    assert [len(batch) for _, batch in batches_of(answer)] == [len(one), len(two)]
    assert [len(batch) for _, batch in batches_of(answer[:-1])] == [len(one)]
    assert list(batches_of(b"")) == []


def test_a_batch_length_that_cannot_be_is_corrupt() -> None:
    batch = build_batch(RECORDS)
    batch[8:12] = (5).to_bytes(4, "big")
    with pytest.raises(Corrupt):
        list(batches_of(batch))


def test_what_neighbours_have_in_common_is_stored_with_each_of_them() -> None:
    headers = (("trace", b"1"), ("none", None))
    same = [Record(0, 1_000, b"key", b"value", headers)] * 3
    mixed = [
        same[0]._replace(timestamp=1_001),
        same[0]._replace(timestamp=1_001, key=b"yek"),
        same[0]._replace(timestamp=1_001, key=b"yek", headers=()),
        same[0]._replace(timestamp=1_001, key=b"yek", headers=(), value=b"longer value"),
        Record(0, 1_000, b"key", None, headers),
        Record(0, 999, b"key", b"", headers),
        Record(0, 999, None, b"", ()),
        Record(0, 9_999_999, b"", b"v" * 5_000, (("trace", b"1"),)),
    ]
    records = [*same, *mixed, *same, *mixed]
    alone = bytearray()
    for place, record in enumerate(records):
        encode_record(alone, place, record.timestamp - 1_000, record)

    batch = build_batch(records)

    assert batch[HEADER_BYTES:] == alone
    assert read_header(batch).max_timestamp == 9_999_999
