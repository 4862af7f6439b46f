"""The routing cursors of the streams of a virtual host: moved, written, and committed."""

from mainstem.model.ids import StreamId
from mainstem.queues.publishing.exchange_stream_driver import ExchangeStream


class RouterCursors:
    """Remembers which cursors moved, and from where streams are routed after a crash."""

    def __init__(self) -> None:
        self._moved: dict[ExchangeStream, None] = {}
        # From where streams are routed after a crash: written last, and committed.
        self._kept: dict[StreamId, int] = {}
        self._safe: dict[StreamId, int] = {}

    def opened(self, stream: StreamId, cursor: int) -> None:
        """Add a stream with its stored cursor."""
        self._safe[stream] = cursor

    def moved(self, stream: ExchangeStream) -> None:
        """Note a moved cursor; writing it later is safe: owners recognise repeated offers."""
        self._moved[stream] = None

    def closed(self, stream: ExchangeStream) -> None:
        """Remove a stream."""
        self._moved.pop(stream, None)
        for known in (self._safe, self._kept):
            known.pop(stream.writer.id, None)

    def take_moved(self) -> list[ExchangeStream]:
        """Streams whose cursors have to be written; those written last time are committed."""
        moved, self._moved = list(self._moved), {}
        self._safe |= self._kept
        self._kept = {stream.router.stream: stream.router.cursor for stream in moved}
        return moved

    def may_be_routed_again(self, stream: ExchangeStream) -> bool:
        """Whether records before the end of a stream may be routed, now or after a crash."""
        return self._safe.get(stream.writer.id, 0) < stream.writer.next_offset
