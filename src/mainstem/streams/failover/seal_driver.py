"""Submits a request to seal a range to the catalogue, repeatedly, until it is decided."""

import asyncio
import logging
from typing import Protocol

from msgspec.structs import replace

from mainstem.log.range_log import RangeLog
from mainstem.log.segments.reader import batch_start
from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.ids import Epoch, Offset
from mainstem.model.metadata import Range, Stream
from mainstem.placement.changes.commands import RangeEnd, SealAndCreate
from mainstem.placement.service import PlacementService
from mainstem.streams.failover.sealing import SealEffects, Sealing, SealRequest
from mainstem.streams.writer.replication import SealPoint

_log = logging.getLogger(__name__)

_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_ID})
_PAUSE_S = 0.05


class SealContext(Protocol):
    """Services that sealing needs."""

    @property
    def placement(self) -> PlacementService:
        """The placement service."""
        ...

    def now_ms(self) -> int:
        """Milliseconds of a clock that never goes back."""
        ...


class _SuccessorRefusedError(Exception):
    """The node that was to take the stream over cannot do so."""


def range_end(
    stream: Stream, range_info: Range, log: RangeLog, point: SealPoint, now: tuple[Epoch, int]
) -> RangeEnd:
    """The catalogue's record of a range that ends at ``point``.

    The largest timestamp may be that of a record behind the end, or the present (``now`` is the
    epoch and the time) where the copy here is damaged: it is never too small.
    """
    epoch, now_ms = now
    latest, latest_offset = log.max_timestamp, log.offset_of_max_timestamp
    if log.damage:
        latest, latest_offset = max(latest, now_ms), point.end - 1
    if point.end == range_info.start:
        latest, latest_offset = -1, -1
    return RangeEnd(
        stream.id,
        epoch,
        range_info.index,
        point.end,
        size_bytes=_size_until(log, point.end),
        max_timestamp=latest,
        max_timestamp_offset=min(latest_offset, point.end - 1),
        suspect=point.suspect,
    )


async def submit_until_decided(context: SealContext, request: SealRequest) -> SealEffects:
    """The outcome of a request: the stream with its next range, or the epoch that took over.

    Raises:
        MainstemError: the stream was deleted.
    """
    sealing = Sealing(request)
    effects = sealing.begin(context.now_ms())
    while not sealing.is_settled:
        if effects.submit is not None:
            try:
                effects = await _submit(context, sealing, effects.submit)
            except _SuccessorRefusedError:
                # No other node may write it now. It is sealed at the same end without a successor:
                # should the first request be applied after all, one of the two is refused.
                sealing = Sealing(
                    replace(request, request_id=f"{request.request_id}-kept", new_writer=None)
                )
                effects = sealing.begin(context.now_ms())
        else:
            await asyncio.sleep(_PAUSE_S)
            effects = sealing.on_time(context.now_ms())
    return effects


async def _submit(context: SealContext, sealing: Sealing, request: SealRequest) -> SealEffects:
    command = SealAndCreate(
        request.request_id,
        request.end,
        done=request.done,
        exclude=request.exclude,
        new_writer=request.new_writer,
        unclean=request.unclean,
    )
    try:
        return sealing.on_answer(await context.placement.submit(command))
    except MainstemError as error:
        if error.code in _GONE or error.code is ErrorCode.SHUTTING_DOWN:
            raise
        if isinstance(error, InvalidRequest) and request.new_writer is not None:
            raise _SuccessorRefusedError from error
        # Not an outcome, whatever the error is: the catalogue is read, then asked again.
        _log.info("the seal of range %d is not decided: %s", request.end.index, error)
    stream = _stream_of(context, request.end)
    if stream is None:
        raise MainstemError(ErrorCode.UNKNOWN_TOPIC, subject=str(request.end.stream))
    effects = sealing.on_stream_seen(stream)
    if not sealing.is_settled:
        sealing.on_no_answer(context.now_ms())
    return effects


def _size_until(log: RangeLog, offset: Offset) -> int:
    """How many bytes lie below a batch boundary, about as many where this copy cannot be read."""
    size = 0
    for segment in log.segments:
        if segment.until_offset <= offset:
            size += segment.size
        elif segment.base_offset < offset:
            try:
                size += batch_start(segment, offset)[1]
            except (Corrupt, Unavailable):
                # Others have it completely, and nothing depends on the exact size.
                size += segment.size
    return size


def _stream_of(context: SealContext, end: RangeEnd) -> Stream | None:
    topic = context.placement.catalogue.topic_by_id(end.stream.topic)
    return None if topic is None else topic.streams[end.stream.partition]
