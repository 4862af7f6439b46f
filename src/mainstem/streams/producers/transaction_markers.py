"""Transaction markers: the control batches that end a transaction in one stream (KIP-98).

key    version i16 · type i16 (0 abort, 1 commit)
value  version i16 · coordinator epoch i32
"""

from struct import Struct, error
from typing import NamedTuple

from mainstem.model.errors import Corrupt
from mainstem.model.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from mainstem.model.records.record import ProducerStamp, Record, build_batch, records_of

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_ABORT = 0
_COMMIT = 1


class TransactionMarker(NamedTuple):
    """How a transaction ended, and the epoch of the coordinator that ended it."""

    commit: bool
    coordinator_epoch: int


def marker_batch(producer_id: int, epoch: int, marker: TransactionMarker, now_ms: int) -> bytearray:
    """The control batch that ends the transaction of a producer."""
    key = _KEY.pack(0, _COMMIT if marker.commit else _ABORT)
    value = _VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(0, now_ms, key, value)],
        flags=TRANSACTIONAL_MASK | CONTROL_MASK,
        producer=ProducerStamp(producer_id, epoch, -1),
    )


def marker_of(batch: bytes | memoryview) -> TransactionMarker:
    """Decode the marker of a control batch."""
    try:
        record = next(records_of(batch))
        _, kind = _KEY.unpack_from(record.key or b"")
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except (error, StopIteration) as reason:
        raise Corrupt(f"not a transaction marker: {reason}") from reason
    return TransactionMarker(kind == _COMMIT, coordinator_epoch)
