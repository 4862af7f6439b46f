"""A lost catalogue rebuilt from folders and the last export."""

import pytest

from mainstem.model.ids import NodeId, TopicId
from mainstem.model.metadata import Topic
from mainstem.placement.persistence.rebuilding import (
    EPOCH_LEAP,
    KnownTopic,
    RebuildableRange,
    RebuiltTopics,
    rebuild,
)
from mainstem.placement.state.chain import flaw

NODE = NodeId(3)
ID = TopicId(b"i" * 16)
OTHER_ID = TopicId(b"o" * 16)


def found(
    index: int, start: int, end: int, *, partition: int = 0, generation: int = 0, epoch: int = 0
) -> RebuildableRange:
    return RebuildableRange(
        topic="t", topic_id=ID, partition=partition, index=index, generation=generation,
        epoch=epoch, start=start, end=end, size_bytes=end - start, max_timestamp=end,
    )  # fmt: skip


def known(*positions: tuple[int, int], name: str = "t", topic_id: TopicId = ID) -> KnownTopic:
    return KnownTopic(name, topic_id, 500, False, {"retention.ms": "9"}, positions)


def rebuilt(ranges: list[RebuildableRange], *exported: KnownTopic) -> RebuiltTopics:
    result = rebuild(ranges, exported, node=NODE, now_ms=1_000)
    for topic in result.topics:
        for stream in topic.streams:
            assert flaw(stream) is None, flaw(stream)
            assert stream.writer == NODE
    return result


def spans(topic: Topic, partition: int = 0) -> list[tuple[int, int, int, int | None]]:
    return [(r.index, r.generation, r.start, r.end) for r in topic.streams[partition].ranges]


def test_ranges_become_a_chain_whose_last_is_open() -> None:
    [topic] = rebuilt([found(1, 10, 25, epoch=1), found(0, 0, 10)], known((0, 1))).topics
    assert (topic.name, topic.id, topic.created_ms) == ("t", ID, 500)
    assert topic.configs == {"retention.ms": "9"}
    assert spans(topic) == [(0, 0, 0, 10), (1, 0, 10, None)]


def test_epochs_leap_over_those_that_clients_may_have_heard_of() -> None:
    [topic] = rebuilt([found(0, 0, 10, epoch=4)], known((0, 9), (0, 2))).topics
    assert [stream.epoch for stream in topic.streams] == [9 + EPOCH_LEAP, 2 + EPOCH_LEAP]
    assert topic.streams[0].last.epoch == 4, "the range keeps the epoch that its header bears"


def test_producer_ids_start_above_any_that_were_given() -> None:
    assert rebuilt([found(0, 0, 1)]).next_producer_id == 1_000 << 20


def test_without_an_export_a_topic_has_default_settings_and_that_is_noted() -> None:
    result = rebuilt([found(0, 0, 10, partition=2)])
    [topic] = result.topics
    assert (len(topic.streams), topic.configs, topic.created_ms) == (3, {}, 1_000)
    assert result.notes == ("topic t: not in the export, restored with default settings",)


def test_partitions_and_topics_without_folders_come_from_the_export() -> None:
    empty = known((7, 1), name="empty", topic_id=OTHER_ID)
    result = rebuilt([found(0, 0, 10)], known((0, 0), (0, 0)), empty)
    by_name = {topic.name: topic for topic in result.topics}
    assert len(by_name["t"].streams) == 2
    assert spans(by_name["empty"]) == [(0, 0, 7, None)]
    assert by_name["empty"].streams[0].start == 7


def test_the_start_of_the_export_holds_unless_the_records_start_later() -> None:
    [topic] = rebuilt([found(0, 0, 10), found(1, 10, 20)], known((12, 0))).topics
    assert topic.streams[0].start == 12
    assert spans(topic) == [(1, 0, 10, None)]
    [topic] = rebuilt([found(1, 10, 20)], known((3, 0))).topics
    assert topic.streams[0].start == 10


def test_the_newest_generation_of_a_range_counts() -> None:
    ranges = [found(0, 0, 10), found(0, 0, 10, generation=1), found(1, 10, 12)]
    [topic] = rebuilt(ranges, known((0, 0))).topics
    assert spans(topic) == [(0, 1, 0, 10), (1, 0, 10, None)]


def test_ranges_that_were_merged_into_an_earlier_one_are_left_out() -> None:
    ranges = [found(0, 0, 20, generation=1), found(1, 10, 20), found(2, 20, 22)]
    result = rebuilt(ranges, known((0, 0)))
    assert spans(result.topics[0]) == [(0, 1, 0, 20), (2, 0, 20, None)]
    assert "range 1 lies inside an earlier one" in result.notes[0]


def test_a_hole_between_ranges_is_bridged_and_noted() -> None:
    result = rebuilt([found(0, 0, 10), found(2, 15, 20)], known((0, 0)))
    [topic] = result.topics
    assert spans(topic) == [(0, 0, 0, 15), (2, 0, 15, None)]
    assert topic.streams[0].ranges[0].suspect
    assert "offsets between them hold no records" in result.notes[0]


def test_a_range_that_runs_past_the_next_is_cut_where_the_next_begins() -> None:
    [topic] = rebuilt([found(0, 0, 12), found(1, 10, 20)], known((0, 0))).topics
    assert spans(topic) == [(0, 0, 0, 10), (1, 0, 10, None)]


def test_empty_ranges_in_the_middle_are_not_kept() -> None:
    [topic] = rebuilt([found(0, 0, 10), found(1, 10, 10), found(2, 10, 20)], known((0, 0))).topics
    assert spans(topic) == [(0, 0, 0, 10), (2, 0, 10, None)]


def test_of_two_incarnations_of_a_name_the_exported_one_counts() -> None:
    newer = RebuildableRange("t", OTHER_ID, 0, 0, 0, 0, 0, 50, max_timestamp=99)
    result = rebuilt([newer, found(0, 0, 10)], known((0, 0)))
    assert [topic.id for topic in result.topics] == [ID]
    result = rebuilt([newer, found(0, 0, 10)])
    assert [topic.id for topic in result.topics] == [OTHER_ID], "without export, the newer records"
    assert any("two incarnations" in note for note in result.notes)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__queue_data", "__queue_data.team"])
def test_an_internal_topic_stays_internal(name: str) -> None:
    assert rebuilt([RebuildableRange(name, ID, 0, 0, 0, 0, 0, 50)]).topics[0].internal
