"""Search for the first record at or after a timestamp, exact to the record."""

from mainstem.log.segments.reader import headers_from, read_slice
from mainstem.log.segments.segment import Segment
from mainstem.model.records.record import batches_of, records_of


def find_by_time(segments: list[Segment], timestamp: int) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that is not older; None when there is none."""
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        start = segment.index.before_time(timestamp)
        for header, _ in headers_from(segment, start):
            if header.max_timestamp >= timestamp:
                found = _find_in_batch(segment, header.base_offset, timestamp)
                if found is not None:
                    return found
    return None


def _find_in_batch(segment: Segment, base_offset: int, timestamp: int) -> tuple[int, int] | None:
    piece = read_slice(segment, base_offset, 1, segment.until_offset, min_one=True)
    assert piece is not None
    for _, batch in batches_of(piece.read()):
        for record in records_of(batch):
            if record.timestamp >= timestamp:
                return record.offset, record.timestamp
    return None
