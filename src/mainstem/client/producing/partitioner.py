"""Which partition a record goes to: the given one, the one its key hashes to, or a sticky one.

Pure. Guarantees: a key goes where Kafka's default partitioner sends it (murmur2, seed 0x9747b28c,
sign bit cleared, modulo the number of partitions); records without a key stay on one partition
until 16,384 of them went there or 100 ms have passed, so that they fill batches.
"""

from collections.abc import Callable
from typing import Final

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.records.murmur2 import partition_of_key

STICKY_RECORDS_MAX: Final = 16_384
STICKY_MS_MAX: Final = 100


class _Sticky:
    __slots__ = ("partition", "records", "since_ms")

    def __init__(self, partition: int, since_ms: float) -> None:
        self.partition = partition
        self.since_ms = since_ms
        self.records = 0


class Partitioner:
    """Chooses partitions for one producer.

    Args:
        choose: returns a random number in [0, n) for a given n.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self._choose = choose
        self._sticky: dict[str, _Sticky] = {}

    def partition(
        self,
        topic: str,
        partition_count: int,
        *,
        key: bytes | None,
        wanted: int | None,
        now_ms: float,
    ) -> int:
        """The partition of one record.

        Raises:
            InvalidRequest: the given partition does not exist.
        """
        if wanted is not None:
            if not 0 <= wanted < partition_count:
                raise InvalidRequest(
                    ErrorCode.INVALID_PARTITIONS,
                    f"partition {wanted} of {partition_count}",
                    subject=topic,
                )
            return wanted
        if key is not None:
            return partition_of_key(key, partition_count)
        return self._stick(topic, partition_count, now_ms)

    def _stick(self, topic: str, partition_count: int, now_ms: float) -> int:
        sticky = self._sticky.get(topic)
        if (
            sticky is None
            or sticky.partition >= partition_count
            or sticky.records >= STICKY_RECORDS_MAX
            or now_ms - sticky.since_ms >= STICKY_MS_MAX
        ):
            previous = None if sticky is None else sticky.partition
            sticky = _Sticky(self._other(partition_count, previous), now_ms)
            self._sticky[topic] = sticky
        sticky.records += 1
        return sticky.partition

    def _other(self, partition_count: int, previous: int | None) -> int:
        """Any partition but the previous one, if there is another."""
        if previous is None or previous >= partition_count or partition_count == 1:
            return self._choose(partition_count)
        step = 1 + self._choose(partition_count - 1)
        return (previous + step) % partition_count
