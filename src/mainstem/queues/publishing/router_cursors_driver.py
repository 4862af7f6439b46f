"""How far the streams of a virtual host are routed: moved, kept, and stored for certain."""

from mainstem.model.ids import StreamId
from mainstem.queues.publishing.exchange_stream_driver import ExchangeStream


class RouterCursors:
    """Remembers whose cursor moved, and from where streams are routed after a crash."""

    def __init__(self) -> None:
        self._moved: dict[ExchangeStream, None] = {}
        # Where streams are routed from after a crash: kept just now, and stored for certain.
        self._kept: dict[StreamId, int] = {}
        self._safe: dict[StreamId, int] = {}

    def opened(self, stream: StreamId, cursor: int) -> None:
        """A stream is routed from a cursor that is stored."""
        self._safe[stream] = cursor

    def moved(self, stream: ExchangeStream) -> None:
        """The cursor of a stream moved: kept now and then, since owners know what they have."""
        self._moved[stream] = None

    def closed(self, stream: ExchangeStream) -> None:
        """A stream is routed no more."""
        self._moved.pop(stream, None)
        for known in (self._safe, self._kept):
            known.pop(stream.writer.id, None)

    def take_moved(self) -> list[ExchangeStream]:
        """Streams whose cursors are to be kept now; those kept the last time are stored by now."""
        moved, self._moved = list(self._moved), {}
        self._safe |= self._kept
        self._kept = {stream.router.stream: stream.router.cursor for stream in moved}
        return moved

    def may_be_routed_again(self, stream: ExchangeStream) -> bool:
        """Whether records before the end of a stream may be routed, now or after a crash."""
        return self._safe.get(stream.writer.id, 0) < stream.writer.next_offset
