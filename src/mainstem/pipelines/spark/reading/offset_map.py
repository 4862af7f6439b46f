"""Offsets of many partitions, in the format of Spark's Kafka source; limits of a batch. Pure.

    {"orders": {"0": 120, "1": 98}}

Guarantees: limiting is deterministic; every partition that has new records gets at least one offset
of a limited batch; the ranges that a batch is split into cover it, without overlap.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest

Offsets = dict[TopicPartition, int]
Written = dict[str, dict[str, int]]


class OffsetRange(NamedTuple):
    """Records of one partition with offsets in [start, until)."""

    partition: TopicPartition
    start: int
    until: int

    @property
    def size(self) -> int:
        """How many offsets it covers."""
        return self.until - self.start


def written(offsets: Mapping[TopicPartition, int]) -> Written:
    """Offsets in the format of a checkpoint."""
    found: Written = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def read(form: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Offsets of a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in form.items()
        for partition, offset in partitions.items()
    }


def parse(text: str, option: str) -> Offsets:
    """Offsets (or timestamps) that a user wrote as JSON.

    Raises:
        InvalidRequest: the text does not have this format.
    """
    try:
        return read(json.loads(text))
    except (ValueError, AttributeError, TypeError):
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"not a map of offsets: {text[:200]!r}",
            subject=option,
            remedy='use {"topic": {"0": 23, "1": -2}}; -2 is the earliest, -1 the latest',
        ) from None


def parse_assignment(text: str, option: str) -> list[TopicPartition]:
    """Partitions that a user wrote as JSON: ``{"orders": [0, 1]}``.

    Raises:
        InvalidRequest: the text does not have this format.
    """
    try:
        return [
            TopicPartition(topic, int(partition))
            for topic, partitions in json.loads(text).items()
            for partition in partitions
        ]
    except (ValueError, AttributeError, TypeError):
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"not a map of partitions: {text[:200]!r}",
            subject=option,
            remedy='use {"topic": [0, 1]}',
        ) from None


def limited(start: Offsets, latest: Offsets, rows_max: int) -> Offsets:
    """The ends of a batch of about ``rows_max`` offsets: every partition in proportion."""
    sizes = {each: until - start.get(each, 0) for each, until in latest.items()}
    sizes = {each: size for each, size in sizes.items() if size > 0}
    total = sum(sizes.values())
    if total <= rows_max:
        return latest
    ends = dict(latest)
    for each, size in sizes.items():
        ends[each] = start.get(each, 0) + max(1, size * rows_max // total)
    return ends


def split(
    ranges: Iterable[OffsetRange], *, parts_min: int = 0, rows_max: int | None = None
) -> list[OffsetRange]:
    """Ranges in about ``parts_min`` pieces or more, each of at most ``rows_max`` offsets."""
    whole = [each for each in ranges if each.size > 0]
    if rows_max is not None:
        whole = [piece for each in whole for piece in _cut(each, -(-each.size // rows_max))]
    total = sum(each.size for each in whole)
    if len(whole) >= parts_min or not total:
        return whole
    pieces: list[OffsetRange] = []
    for each in whole:
        pieces += _cut(each, max(1, round(each.size / total * parts_min)))
    return pieces


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    count = min(count, whole.size)
    bounds = [whole.start + whole.size * place // count for place in range(count + 1)]
    return [OffsetRange(whole.partition, start, until) for start, until in pairwise(bounds)]
