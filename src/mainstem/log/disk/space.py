"""Whether the disk has space for records, or only for what a node needs to operate.

    free space ──── records and metadata ────┤ reserve ├──── metadata only ────┤ 0

Below the reserve ordinary records are refused; what is written to stay consistent, to move leaders
and to free space (checkpoints, promises, seals, the catalogue, group and queue state) may use it. A
write that failed for lack of space counts as full, whatever the file system reports: a quota is not
visible there. Decides only; ``space_monitor`` measures periodically, and when as much was written
as had been free above the reserve, so that an append needs no system call.
"""

from collections.abc import Callable  # noqa: TC003 - the type of an attribute

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.limits import (
    DISK_BALLAST_BYTES_MAX,
    DISK_RESERVE_BYTES_MAX,
    DISK_RESERVE_BYTES_MIN,
    MIB,
)

_RESERVE_SHARE = 50  # 2 % of the file system
_SMALL_SHARE = 10  # but not more than a tenth of a small one
_BALLAST_SHARE = 8
_STEP_BYTES = 1 * MIB  # of records between two measurements at least
_RELIEF_SHARE = 4  # space counts as available again a quarter of the reserve above it


def default_reserve(total_bytes: int) -> int:
    """The reserve for metadata on a file system of that size."""
    least = min(DISK_RESERVE_BYTES_MIN, total_bytes // _SMALL_SHARE)
    return max(least, min(DISK_RESERVE_BYTES_MAX, total_bytes // _RESERVE_SHARE))


class DiskSpace:
    """Decides whether the disk has space for records. Without a measurement there is space."""

    __slots__ = ("_has_failed", "_left_bytes", "free_bytes", "is_low", "measure", "reserve_bytes")

    def __init__(self, reserve_bytes: int = 0) -> None:
        self.reserve_bytes = reserve_bytes
        self.free_bytes = -1  # not measured yet
        self.is_low = False
        self._has_failed = False
        self._left_bytes = 0  # may be written before it is measured again
        self.measure: Callable[[], None] | None = None

    @property
    def ballast_bytes(self) -> int:
        """Size of the ballast file, which is deleted for a start on a full disk."""
        return min(self.reserve_bytes // _BALLAST_SHARE, DISK_BALLAST_BYTES_MAX)

    @property
    def is_probe_wanted(self) -> bool:
        """Whether only a test write can show that there is space again."""
        return self._has_failed

    def measured(self, free_bytes: int, *, is_writable: bool = True) -> None:
        """So much is free, and a test write succeeded if one was needed."""
        self.free_bytes = free_bytes
        self._has_failed = self._has_failed and not is_writable
        relief = self.reserve_bytes // _RELIEF_SHARE if self.is_low else 0
        self.is_low = self._has_failed or free_bytes < self.reserve_bytes + relief
        self._left_bytes = max(free_bytes - self.reserve_bytes, _STEP_BYTES)

    def count_written(self, size_bytes: int) -> None:
        """So many bytes of records were written."""
        self._left_bytes -= size_bytes
        if self._left_bytes < 0 and self.measure is not None:
            self.measure()

    def take_ahead(self, size_bytes: int) -> bool:
        """Whether so many bytes may be allocated before they are written; they count from now on.

        What is allocated cannot be used for metadata, so that twice the reserve must stay free.
        """
        if self.free_bytes < 0:
            return True
        if self.is_low or self._left_bytes - size_bytes < self.reserve_bytes:
            return False
        self._left_bytes -= size_bytes
        return True

    def failed(self) -> None:
        """A write failed for lack of space."""
        self._has_failed = self.is_low = True

    def has_space_for(self, size_bytes: int) -> bool:
        """Whether a temporary copy of that size leaves enough space for metadata."""
        if self.free_bytes < 0:
            return True
        return not self._has_failed and self.free_bytes - size_bytes >= self.reserve_bytes // 2

    def refusal(self, subject: str) -> Unavailable:
        """The refusal of a write of records."""
        return Unavailable(
            ErrorCode.DISK_FULL,
            f"{self.free_bytes} bytes are free, {self.reserve_bytes} are kept for metadata",
            subject=subject,
            remedy="free space or lower retention; writing resumes by itself",
        )
