"""Which batches of a fetch response a ``read_committed`` reader sees.

Pure. Guarantees: control batches are never shown; batches of aborted transactions neither, if
responses are processed in offset order.
"""

from collections import deque
from collections.abc import Iterable
from struct import Struct
from struct import error as struct_error
from typing import Final

from mainstem.model.errors import Corrupt
from mainstem.model.records.batch import BatchHeader
from mainstem.model.records.record import records_of

ABORT: Final = 0
_CONTROL_KEY = Struct(">hh")  # version, type


class AbortedBatchFilter:
    """Tracks the transactions of one fetch response.

    Args:
        aborted: (first offset, producer id) of the transactions that were aborted in it.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._aborted = deque(sorted(aborted))
        self._aborting: set[int] = set()

    def shows(self, header: BatchHeader, data: memoryview) -> bool:
        """Whether a batch has records to be shown; to be called in the order of batches.

        Raises:
            Corrupt: a control batch is damaged.
        """
        while self._aborted and self._aborted[0][0] < header.until_offset:
            self._aborting.add(self._aborted.popleft()[1])
        if header.is_control:
            self._end_transaction(header, data)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)

    def _end_transaction(self, header: BatchHeader, data: memoryview) -> None:
        """After an abort, the producer's next transaction is a new one."""
        for record in records_of(data):
            try:
                _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
            except struct_error:
                raise Corrupt("a control record without a type") from None
            if kind == ABORT:
                self._aborting.discard(header.producer_id)
