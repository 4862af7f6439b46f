"""An internal stream in memory, for tests of coordinators, with controlled commits and failures."""

from collections.abc import Callable

from mainstem.model.errors import ErrorCode, MainstemError, Unavailable
from mainstem.model.records.batch import read_header, stamp
from mainstem.streams.producers.transaction_markers import TransactionMarker, marker_batch

Settled = Callable[[MainstemError | None], None]


class MemoryBatches:
    """Complete batches."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self) -> bytes:
        """The bytes."""
        return self._data


class MemoryStream:
    """Keeps batches in a list. ``is_synced`` False holds commits back until ``commit``.

    ``refusal`` is the error of appends, ``missing`` that of reads; ``lapsed`` is the reason why
    another node may be the writer by now.
    """

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start_offset = 0
        self.epoch = 0
        self.committed = 0
        self.written = 0
        self.is_synced = True
        self.waiting_max = 1_000
        self.refusal: MainstemError | None = None
        self.missing: MainstemError | None = None
        self.lapsed: Callable[[], MainstemError | None] | None = None
        self._waiting: list[tuple[int, Settled]] = []

    def append(self, batch: bytearray) -> int:
        """Write one batch, or raise ``refusal``."""
        if self.refusal is not None:
            raise self.refusal
        stamp(batch, 0, self.written, self.epoch)
        self.written = read_header(batch).until_offset
        self.batches.append(bytes(batch))
        if self.is_synced:
            self.commit()
        return self.written

    def write_marker(self, producer_id: int, epoch: int, marker: TransactionMarker) -> int:
        """Write the control batch that ends a producer's transaction."""
        return self.append(marker_batch(producer_id, epoch, marker, 0))

    def commit(self, error: MainstemError | None = None) -> None:
        """Commit what was written, or fail with an error."""
        if error is None:
            self.committed = self.written
        waiting, self._waiting = self._waiting, []
        for _, settled in waiting:
            settled(error)

    def when_committed(self, until: int, settled: Settled) -> bool:
        """Whether the records before ``until`` are committed."""
        if until <= self.committed:
            return True
        if len(self._waiting) >= self.waiting_max:
            raise Unavailable(ErrorCode.OVERLOADED, "too many wait")
        self._waiting.append((until, settled))
        return False

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> MemoryBatches | None:
        """Batches starting with the one that contains ``offset``; or raise ``missing``."""
        if self.missing is not None:
            raise self.missing
        until = self.committed
        found = b""
        for batch in self.batches:
            header = read_header(batch)
            if header.until_offset <= offset or header.base_offset >= until:
                continue
            if found and len(found) + len(batch) > max_bytes:
                break
            if not found and len(batch) > max_bytes and not min_one:
                return None
            found += batch
        return MemoryBatches(found) if found else None
