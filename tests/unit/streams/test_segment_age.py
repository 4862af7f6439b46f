"""How old segments become: each stream a little different, and as its topic now says."""

from pathlib import Path

from tests.kit.streams import StreamNode

from mainstem.model.config.topic import topic_settings
from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.placement.changes.commands import SetTopicConfigs
from mainstem.streams.maintenance.retention_driver import RetentionDriver
from mainstem.streams.writer.segment_settings import segment_age_ms

HOUR_MS = 3_600_000


def ages(segment_ms: int, jitter_ms: int, streams: int = 1_000) -> list[int]:
    settings = topic_settings({"segment.ms": str(segment_ms), "segment.jitter.ms": str(jitter_ms)})
    topic = TopicId(b"topic of the age")
    return [
        segment_age_ms(settings, StreamId(topic, PartitionIndex(number)))
        for number in range(streams)
    ]


def test_without_jitter_all_segments_become_equally_old() -> None:
    assert set(ages(HOUR_MS, 0)) == {HOUR_MS}


def test_jitter_spreads_the_ends_of_segments_evenly() -> None:
    found = ages(HOUR_MS, HOUR_MS // 2)
    assert HOUR_MS // 2 < min(found) <= max(found) <= HOUR_MS
    tenths = [(HOUR_MS - age) * 20 // HOUR_MS for age in found]
    assert all(50 < tenths.count(tenth) < 150 for tenth in range(10))
    assert found == ages(HOUR_MS, HOUR_MS // 2), "a restart changes nothing"


def test_more_jitter_than_age_leaves_an_age() -> None:
    found = ages(10, HOUR_MS)
    assert min(found) >= 1
    assert max(found) <= 10


async def test_an_idle_segment_is_closed_at_the_age_of_its_own_stream(tmp_path: Path) -> None:
    async with StreamNode(tmp_path) as node:
        await node.create(segment_ms=str(HOUR_MS), segment_jitter_ms=str(HOUR_MS))
        await node.write(b"a")
        stream = node.streams.partition("t", 0)
        upkeep = RetentionDriver(node.streams, node.store, node.flusher, node.clock)
        age_ms = segment_age_ms(stream.settings, stream.id)
        assert 0 < age_ms < HOUR_MS
        node.clock.now_ms += age_ms - 1
        await upkeep.run_once()
        await node.write(b"b")
        assert stream.log.segment_count == 1
        node.clock.now_ms += 1
        await upkeep.run_once()
        await node.write(b"c")
        assert stream.log.segment_count == 2


async def test_changed_settings_hold_for_the_segment_at_hand(tmp_path: Path) -> None:
    async with StreamNode(tmp_path) as node:
        topic = await node.create()
        await node.write(b"a" * 2_000)
        await node.placement.service.submit(
            SetTopicConfigs(topic.id, {}, {"internal.segment.bytes": "2500"})
        )
        await node.write(b"b" * 1_000)
        assert node.streams.partition("t", 0).log.segment_count == 2
