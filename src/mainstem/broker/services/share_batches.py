"""Splits bytes that were read into batches for share groups, without hidden ones.

Transaction markers are hidden, and aborted batches too from a group that reads only committed
records. Pure; reads headers of batches, never records.
"""

from collections.abc import Sequence

from mainstem.coordination.share.partition import ReadBatch
from mainstem.coordination.share.requests import AcquiredRange
from mainstem.model.records.record import batches_of

Aborted = Sequence[tuple[int, int]]  # (producer id, first offset)


def batches_to_share(data: bytes, aborted: Aborted) -> list[ReadBatch]:
    """The batches in ``data``; ``aborted`` are the transactions to be left out."""
    found = []
    coming = sorted(aborted, key=lambda each: each[1])
    gone: set[int] = set()
    at = 0
    for header, _ in batches_of(data):
        while at < len(coming) and coming[at][1] < header.until_offset:
            gone.add(coming[at][0])
            at += 1
        is_dead = header.is_control or (header.is_transactional and header.producer_id in gone)
        if header.is_control:
            gone.discard(header.producer_id)
        found.append(ReadBatch(header.base_offset, header.until_offset, is_dead))
    return found


def cut_to(data: bytes, acquired: Sequence[AcquiredRange]) -> bytes:
    """The batches of ``data`` from the first to the last that holds an acquired record."""
    start = end = at = 0
    for header, _ in batches_of(data):
        if header.until_offset <= acquired[0].start:
            start = at + header.size
        if header.base_offset < acquired[-1].until:
            end = at + header.size
        at += header.size
    return data[start:end]
