"""Which batches a ``read_committed`` reader sees: no markers, no aborted transactions.

The rule is that of Kafka's clients: a producer's transactional batches are hidden from the
first offset of an aborted transaction until its marker.
"""

from collections.abc import Iterable
from struct import Struct

from mainstem.model.records.batch import BatchHeader
from mainstem.model.records.record import records_of

_MARKER = Struct(">hh")  # version, type
_ABORT = 0


class Visibility:
    """Decides for the batches of one read, in their order.

    Args:
        aborted: (producer id, first offset) of every aborted transaction in the range of the read.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(aborted, key=lambda pair: pair[1], reverse=True)
        self._hidden: set[int] = set()

    def shows(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether readers see the messages of this batch."""
        while self._coming and self._coming[-1][1] < header.until_offset:
            self._hidden.add(self._coming.pop()[0])
        if header.is_control:
            if header.producer_id in self._hidden and _is_abort(batch):
                self._hidden.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._hidden)


def _is_abort(batch: memoryview) -> bool:
    marker = next(records_of(batch), None)
    if marker is None or marker.key is None or len(marker.key) < _MARKER.size:
        return False
    _, kind = _MARKER.unpack_from(marker.key)
    return bool(kind == _ABORT)
