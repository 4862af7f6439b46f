"""How a micro-batch is limited and cut."""

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.client.values import TopicPartition
from mainstem.pipelines.spark.reading import offset_map
from mainstem.pipelines.spark.reading.offset_map import OffsetRange, limited, split

PLACES = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
STARTS = st.dictionaries(PLACES, st.integers(0, 10_000), max_size=8)


@settings(deadline=None)
@given(starts=STARTS, data=st.data(), rows_max=st.integers(1, 5_000))
def test_a_limited_batch_moves_every_partition_and_never_beyond_the_end(
    starts: dict[TopicPartition, int], data: st.DataObject, rows_max: int
) -> None:
    latest = {place: start + data.draw(st.integers(0, 9_000)) for place, start in starts.items()}
    ends = limited(starts, latest, rows_max)
    assert ends.keys() == latest.keys()
    for place, end in ends.items():
        assert starts[place] <= end <= latest[place]
        assert end > starts[place] or latest[place] == starts[place]
    taken = sum(ends[place] - starts[place] for place in ends)
    waiting = sum(latest[place] - starts[place] for place in ends)
    # Each of many partitions gets at least one.
    assert taken <= max(rows_max, sum(latest[p] > starts[p] for p in ends)) + len(ends)
    assert waiting > rows_max or taken == waiting


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(0, 1_000), max_size=6),
    parts_min=st.integers(0, 20),
    rows_max=st.none() | st.integers(1, 300),
)
def test_pieces_cover_the_ranges_without_overlap(
    sizes: list[int], parts_min: int, rows_max: int | None
) -> None:
    ranges = [
        OffsetRange(TopicPartition("t", index), 10 * index, 10 * index + size)
        for index, size in enumerate(sizes)
    ]
    pieces = split(ranges, parts_min=parts_min, rows_max=rows_max)
    for whole in ranges:
        mine = [each for each in pieces if each.partition == whole.partition]
        covered = [offset for each in mine for offset in range(each.start, each.until)]
        assert covered == list(range(whole.start, whole.until))
    assert all(each.size > 0 for each in pieces)
    if rows_max is not None:
        assert all(each.size <= rows_max for each in pieces)


@given(offsets=STARTS)
def test_offsets_survive_the_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert offset_map.read(offset_map.written(offsets)) == offsets
