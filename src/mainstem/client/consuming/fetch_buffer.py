"""Fetched records of one partition that the consumer has not yet returned.

Pure. Guarantees: records are in offset order, none twice, none below the position; control records
are never shown; under read_committed neither are records of aborted transactions; after a seek,
responses to older fetches are dropped.
"""

from collections import deque
from collections.abc import Iterator
from struct import Struct
from struct import error as struct_error
from typing import Final

from mainstem.client.values import ConsumerRecord, TopicPartition
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.model.records.batch import BatchHeader, Buffer
from mainstem.model.records.record import Record, batches_of, records_of

ABORT: Final = 0
_CONTROL_KEY = Struct(">hh")  # version, type


class FetchBuffer:
    """The fetch state of one partition."""

    __slots__ = (
        "_aborted",
        "_aborting",
        "_batches",
        "_current",
        "_current_until",
        "high_watermark",
        "is_in_flight",
        "is_out_of_range",
        "is_paused",
        "leader_epoch",
        "not_before",
        "partition",
        "position",
        "reset_to",
        "serial",
    )

    def __init__(self, partition: TopicPartition, *, reset_to: int | None = None) -> None:
        self.partition = partition
        self.position: int | None = None  # not known yet
        self.reset_to = reset_to  # where to start without a committed offset; None: raise an error
        self.leader_epoch = -1
        self.high_watermark = -1
        self.is_paused = False
        self.is_in_flight = False
        self.is_out_of_range = False  # the position was out of range: do not use the committed one
        self.not_before = 0.0
        self.serial = 0
        self._batches: deque[tuple[BatchHeader, memoryview]] = deque()
        self._current: Iterator[Record] | None = None
        self._current_until = 0
        self._aborted: deque[tuple[int, int]] = deque()  # first offset, producer id
        self._aborting: set[int] = set()

    @property
    def is_empty(self) -> bool:
        """Whether everything that was fetched is returned."""
        return self._current is None and not self._batches

    def may_fetch(self, now: float) -> bool:
        """Whether a fetch should include this partition."""
        return (
            self.position is not None
            and self.is_empty
            and not self.is_paused
            and not self.is_in_flight
            and now >= self.not_before
        )

    def move(self, position: int | None) -> None:
        """Changes the position; drops what was fetched and what is being fetched."""
        self.position = position
        self.is_out_of_range = False
        self.serial += 1
        self._batches.clear()
        self._current = None
        self._aborted.clear()
        self._aborting.clear()

    def accept(self, data: Buffer, aborted: list[tuple[int, int]] | None = None) -> None:
        """Adds a fetch response. ``aborted``: (first offset, producer id), or None to show all.

        Raises:
            InvalidRequest: the response is too small for even one batch.
            Corrupt: it does not consist of batches.
        """
        assert self.is_empty, "a partition is fetched again once its buffer is empty"
        self._batches.extend(batches_of(data))
        if len(data) and not self._batches:
            raise InvalidRequest(
                ErrorCode.RECORD_TOO_LARGE,
                f"a batch is larger than the {len(data)} bytes fetched",
                subject=str(self.partition),
                remedy="allow more bytes per partition",
            )
        self._aborted = deque(sorted(aborted or ()))
        self._aborting.clear()

    def take(self, count: int) -> list[ConsumerRecord]:
        """Returns up to so many records and advances the position.

        Raises:
            Corrupt: a batch or record is damaged; the position stays before it.
        """
        taken: list[ConsumerRecord] = []
        topic, partition = self.partition
        while len(taken) < count:
            if self._current is None and not self._next_batch():
                break
            assert self._current is not None
            assert self.position is not None
            for record in self._current:
                if record.offset < self.position:
                    continue
                self.position = record.offset + 1
                taken.append(ConsumerRecord(topic, partition, *record))
                if len(taken) >= count:
                    break
            else:
                # Compaction may have removed offsets at the end of a batch.
                self.position = max(self.position, self._current_until)
                self._current = None
        return taken

    def _next_batch(self) -> bool:
        """Opens the next batch that is to be shown; skips the others."""
        while self._batches:
            header, data = self._batches.popleft()
            assert self.position is not None, "data is accepted for a known position"
            if header.until_offset <= self.position:
                continue
            self.leader_epoch = header.leader_epoch
            if header.is_control:
                self._end_transaction(header, data)
            elif not self._is_aborted(header):
                self._current = self._checked(data)
                self._current_until = header.until_offset
                return True
            self.position = header.until_offset
        return False

    def _checked(self, data: memoryview) -> Iterator[Record]:
        """The records of a batch; an error names the partition and the offset."""
        try:
            yield from records_of(data)
        except Corrupt as error:
            raise Corrupt(
                f"{error.cause}, in the batch at offset {self.position}",
                subject=str(self.partition),
                remedy="seek past it to continue",
            ) from error

    def _is_aborted(self, header: BatchHeader) -> bool:
        while self._aborted and self._aborted[0][0] < header.until_offset:
            self._aborting.add(self._aborted.popleft()[1])
        return header.is_transactional and header.producer_id in self._aborting

    def _end_transaction(self, header: BatchHeader, data: memoryview) -> None:
        """Processes a marker: after an abort, the producer's next transaction is a new one."""
        for record in self._checked(data):
            try:
                _, kind = _CONTROL_KEY.unpack_from(record.key or b"")
            except struct_error:
                raise Corrupt(
                    "a control record without a type", subject=str(self.partition)
                ) from None
            if kind == ABORT:
                self._is_aborted(header)
                self._aborting.discard(header.producer_id)
