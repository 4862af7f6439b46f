"""What a topic requires of the batches written to it, beyond validity.

Most topics require nothing that needs the records, and then they are not parsed: the writer
compares two numbers and a flag. The rest is here: keys for compacted topics, the broker's clock,
another compression, bounds on timestamps.
"""

from mainstem.model.clock import Clock
from mainstem.model.config.topic import TopicSettings
from mainstem.model.errors import ErrorCode, InvalidRecords, InvalidRequest
from mainstem.model.limits import (
    BATCH_BYTES_MAX,
    DECOMPRESSED_BYTES_MAX,
    RECORD_ERRORS_PER_BATCH_MAX,
)
from mainstem.model.records import compression
from mainstem.model.records.batch import (
    COMPRESSION_MASK,
    HEADER,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    reseal,
)
from mainstem.model.records.record import ProducerStamp, build_batch, records_of

_UNBOUNDED_MS = 2**63 - 1
# Clients limit a batch before they compress it, so a correct one never comes near this.
_EXPANSION_MAX = 64


class BatchRules:
    """The rules of one topic. Three attributes decide whether ``admit`` must be called at all."""

    __slots__ = (
        "_clock",
        "_codec",
        "_looks_at_records",
        "_plain_bytes_max",
        "_settings",
        "any_other",
        "bytes_max",
        "newest_ms",
    )

    def __init__(self, settings: TopicSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._codec = _stored_codec(settings)
        self.bytes_max = settings.max_message_bytes
        self._plain_bytes_max = min(
            DECOMPRESSED_BYTES_MAX, _EXPANSION_MAX * settings.max_message_bytes
        )
        self.newest_ms = _UNBOUNDED_MS if self._stamps_itself else self._newest()
        bounded = settings.timestamp_before_max_ms != _UNBOUNDED_MS and not self._stamps_itself
        self._looks_at_records = settings.compact or bounded
        self.any_other = self._stamps_itself or self._looks_at_records or self._codec is not None

    def admit(self, batch: memoryview, header: BatchHeader) -> memoryview | None:
        """Check a valid batch; other bytes to store in its place if the topic requires them.

        Raises:
            InvalidRequest: the batch breaks a rule of the topic.
        """
        if len(batch) > self.bytes_max:
            raise InvalidRequest(
                ErrorCode.RECORD_TOO_LARGE,
                f"a batch of {len(batch)} bytes where max.message.bytes is {self.bytes_max}",
                remedy="send less at once, or raise the topic's max.message.bytes, to "
                f"{BATCH_BYTES_MAX} at the most",
            )
        if header.max_timestamp > self.newest_ms:
            self.newest_ms = self._newest()
            if header.max_timestamp > self.newest_ms:
                self._check_records(batch)
                raise InvalidRequest(
                    ErrorCode.INVALID_TIMESTAMP,
                    f"timestamp {header.max_timestamp} lies too far in the future",
                    remedy="see the topic's message.timestamp.after.max.ms",
                )
        if not self.any_other:
            return None
        if self._looks_at_records:
            self._check_records(batch)
        stored: memoryview | None = None
        if self._codec is not None and self._codec != header.compression:
            stored = self._recompressed(batch, header, self._codec)
        if self._stamps_itself:
            stored = stored or memoryview(bytearray(batch))
            _stamp_time(stored, self._clock.wall_ms())
        return stored

    @property
    def _stamps_itself(self) -> bool:
        return self._settings.log_append_time

    def _newest(self) -> int:
        allowed = self._settings.timestamp_after_max_ms
        return _UNBOUNDED_MS if allowed == _UNBOUNDED_MS else self._clock.wall_ms() + allowed

    def _recompressed(self, batch: memoryview, header: BatchHeader, codec: int) -> memoryview:
        """The same records, producer and timestamps under another codec."""
        settings = self._settings
        level = {
            compression.GZIP: settings.compression_gzip_level,
            compression.LZ4: settings.compression_lz4_level,
            compression.ZSTD: settings.compression_zstd_level,
        }.get(codec)
        built = build_batch(
            list(records_of(batch, limit_bytes=self._plain_bytes_max)),
            codec=codec,
            level=None if level == -1 else level,
            flags=header.attributes & ~COMPRESSION_MASK,
            producer=ProducerStamp(header.producer_id, header.producer_epoch, header.base_sequence),
            base_timestamp=header.base_timestamp,
        )
        return memoryview(built)

    def _check_records(self, batch: memoryview) -> None:
        """Refuse a batch with records that break a rule, and name them."""
        keyed = self._settings.compact
        oldest, newest = self._bounds_ms()
        broken: list[tuple[int, str]] = []
        bad_timestamp = False
        faults = 0
        number = -1
        for number, record in enumerate(records_of(batch, limit_bytes=self._plain_bytes_max)):
            if keyed and record.key is None:
                fault = "a compacted topic takes records with a key only"
            elif not oldest <= record.timestamp <= newest:
                fault = f"timestamp {record.timestamp} is not within [{oldest}, {newest}]"
                bad_timestamp = True
            else:
                continue
            faults += 1
            if faults <= RECORD_ERRORS_PER_BATCH_MAX:
                broken.append((number, fault))
        if broken:
            first, fault = broken[0]
            raise InvalidRecords(
                ErrorCode.INVALID_TIMESTAMP if bad_timestamp else ErrorCode.INVALID_RECORD,
                f"{faults} of {number + 1} records are refused, the first is record {first}: "
                f"{fault}",
                tuple(broken),
                remedy="see the topic's cleanup.policy and message.timestamp settings",
            )

    def _bounds_ms(self) -> tuple[int, int]:
        """The allowed range of record timestamps."""
        before = self._settings.timestamp_before_max_ms
        if self._stamps_itself:
            return -_UNBOUNDED_MS, _UNBOUNDED_MS
        oldest = -_UNBOUNDED_MS if before == _UNBOUNDED_MS else self._clock.wall_ms() - before
        return oldest, self._newest()


def _stored_codec(settings: TopicSettings) -> int | None:
    """The codec to store in; None keeps what the producer chose."""
    name = settings.compression_type
    if name == "producer":
        return None
    return compression.NONE if name == "uncompressed" else compression.codec_of(name)


def _stamp_time(batch: memoryview, now_ms: int) -> None:
    """Set the broker's time, which then holds for each of its records."""
    fields = list(HEADER.unpack_from(batch, 0))
    fields[5] |= TIMESTAMP_TYPE_MASK
    fields[8] = now_ms
    HEADER.pack_into(batch, 0, *fields)
    reseal(batch)
