"""Segment settings of a stream, from its topic's settings. Pure.

Streams that were created together would start their next segments together, which would cause a
pause. So each takes a part of ``segment.jitter.ms`` off the age at which its segments end: always
the same part, derived from its id, which spreads streams as well as a random number and stays
the same over restarts.
"""

from zlib import crc32

from mainstem.log.segments.segment_list import SegmentSettings
from mainstem.model.config.topic import TopicSettings
from mainstem.model.ids import StreamId

_PARTS = 1 << 32


def segment_age_ms(settings: TopicSettings, stream: StreamId) -> int:
    """The age at which a segment of that stream ends."""
    jitter_ms = min(settings.segment_jitter_ms, settings.segment_ms)
    part = crc32(b"%b-%d" % (stream.topic, stream.partition))
    # At least one: an age of zero would end each segment with its first batch.
    return max(1, settings.segment_ms - jitter_ms * part // _PARTS)


def segment_settings(settings: TopicSettings, stream: StreamId) -> SegmentSettings:
    """The part of a topic's settings that concerns the files of one stream."""
    return SegmentSettings(
        segment_bytes=settings.segment_bytes,
        segment_ms=segment_age_ms(settings, stream),
        index_interval_bytes=settings.index_interval_bytes,
    )
