"""What the streams of one node share: the list of those with staged batches, and one flush for all.

A connection's read burst touches a few streams; ``flush`` writes each of them once. Syncing and
rolling are done by others, which are passed in.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from mainstem.log.disk.space import DiskSpace
from mainstem.log.range_log import RangeLog
from mainstem.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from mainstem.streams.writer.stream_driver import StreamWriter


class Flusher:
    """The streams that wait for their write, and callbacks for a sync or a new range."""

    __slots__ = ("dirty", "fatal", "metrics", "roll", "space", "sync")

    def __init__(
        self,
        metrics: Metrics,
        *,
        sync: Callable[[RangeLog], None],
        roll: "Callable[[StreamWriter], None]",
        fatal: Callable[[BaseException], None],
        space: DiskSpace | None = None,
    ) -> None:
        self.dirty: list[StreamWriter] = []
        self.metrics = metrics
        self.sync = sync
        self.roll = roll
        self.fatal = fatal
        self.space = space or DiskSpace()

    def flush(self) -> None:
        """Write everything that is staged, one vectored write per stream."""
        dirty = self.dirty
        if not dirty:
            return
        self.dirty = []
        for stream in dirty:
            stream.flush()
