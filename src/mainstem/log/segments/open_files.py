"""Resources of finished segments: bounded descriptors, bounded index memory."""

from collections import OrderedDict
from typing import TYPE_CHECKING

from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.space import DiskSpace
from mainstem.model.limits import MIB

if TYPE_CHECKING:
    from mainstem.log.segments.segment import Segment

INDEX_BYTES_MAX = 32 * MIB


class OpenFiles:
    """Second-chance list of segments with an open file, and a budget for indexes read back."""

    def __init__(self, access: FileAccess, open_max: int, space: DiskSpace | None = None) -> None:
        self.access = access
        self.space = space or DiskSpace()
        self._open_max = open_max
        self._segments: OrderedDict[Segment, None] = OrderedDict()
        self._indexes: OrderedDict[Segment, int] = OrderedDict()
        self._index_bytes = 0

    def __len__(self) -> int:
        return len(self._segments)

    def opened(self, segment: "Segment") -> None:
        """A segment opened its file; others may have to close theirs."""
        self._segments[segment] = None
        self.shrink(spare=segment)

    def shrink(self, spare: "Segment | None" = None) -> None:
        """Close files that were not used since the last pass."""
        excess = len(self._segments) - self._open_max
        for _ in range(2 * len(self._segments) if excess > 0 else 0):
            oldest, _nothing = self._segments.popitem(last=False)
            if oldest is spare or oldest.used or not oldest.put_away():
                oldest.used = False
                self._segments[oldest] = None
            else:
                excess -= 1
                if excess <= 0:
                    break

    def indexed(self, segment: "Segment", size_bytes: int) -> None:
        """The index of a finished segment is in memory; the oldest ones may be dropped."""
        self._index_bytes += size_bytes - self._indexes.pop(segment, 0)
        self._indexes[segment] = size_bytes
        while self._index_bytes > INDEX_BYTES_MAX and len(self._indexes) > 1:
            oldest, freed = self._indexes.popitem(last=False)
            self._index_bytes -= freed
            oldest.drop_index()

    def closed(self, segment: "Segment") -> None:
        """A segment was deleted."""
        self._segments.pop(segment, None)
        self._index_bytes -= self._indexes.pop(segment, 0)
