"""How old segments become: each stream a little different, and as its topic now says."""

import asyncio
from pathlib import Path

from tests.unit.streams.house import House

from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.model.topic_config import topic_settings
from mainstem.placement.records import SetTopicConfigs
from mainstem.streams.retention_driver import RetentionDriver
from mainstem.streams.segment_age import segment_age_ms

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


def test_an_idle_segment_is_closed_at_the_age_of_its_own_stream(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            await house.create(segment_ms=str(HOUR_MS), segment_jitter_ms=str(HOUR_MS))
            await house.write(b"a")
            stream = house.streams.door("t", 0)
            upkeep = RetentionDriver(house.streams, house.store, house.flusher, house.clock)
            age_ms = segment_age_ms(stream.settings, stream.id)
            assert 0 < age_ms < HOUR_MS
            house.clock.now_ms += age_ms - 1
            await upkeep.run_once()
            await house.write(b"b")
            assert stream.log.segment_count == 1
            house.clock.now_ms += 1
            await upkeep.run_once()
            await house.write(b"c")
            assert stream.log.segment_count == 2

    asyncio.run(story())


def test_changed_settings_hold_for_the_segment_at_hand(tmp_path: Path) -> None:
    async def story() -> None:
        async with House(tmp_path) as house:
            topic = await house.create()
            await house.write(b"a" * 2_000)
            await house.placement.service.submit(
                SetTopicConfigs(topic.id, {}, {"internal.segment.bytes": "2500"})
            )
            await house.write(b"b" * 1_000)
            assert house.streams.door("t", 0).log.segment_count == 2

    asyncio.run(story())
