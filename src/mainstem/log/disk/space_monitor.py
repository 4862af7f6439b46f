"""Measures the free space of the data folder periodically, on a thread.

Keeps a *ballast* file while there is space: a node that finds no space when it starts deletes it,
and has space for the seals and the catalogue's entry that a start needs.

Nothing here holds a record, so no failure here stops the node: a failed measurement keeps
the last value, a failed write is tried again with the next measurement.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from mainstem.log.disk.checked_file import FILE_MODE
from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.space import DiskSpace, default_reserve
from mainstem.model.limits import MIB
from mainstem.telemetry.metrics import Metrics

BALLAST = "disk.ballast"
PROBE = "disk.probe"
PROBE_BYTES = 1 * MIB
INTERVAL_S = 1.0
NEAR_INTERVAL_S = 0.1  # while the reserve is near, more would be written between two measurements
NEAR_RESERVES = 4

logger = logging.getLogger(__name__)


class DiskSpaceMonitor:
    """Updates ``space`` with the free bytes.

    Args:
        data_dir: any folder on the file system.
        reserve_bytes: the reserve for metadata; None: derived from the size of the file system.
    """

    def __init__(
        self,
        data_dir: Path,
        reserve_bytes: int | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._metrics: Metrics | None = None
        self._access = FileAccess()
        self._is_logged_low = False
        self._logged_failure: str | None = None
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        if reserve_bytes is None:
            found = os.statvfs(data_dir)
            reserve_bytes = default_reserve(found.f_blocks * found.f_frsize)
        self.space = DiskSpace(reserve_bytes)
        if free_bytes(data_dir) < self.space.ballast_bytes:
            (data_dir / BALLAST).unlink(missing_ok=True)
        self._take(self._measure(is_wanted=False))
        self.space.measure = self.measure_now

    def show_in(self, metrics: Metrics) -> None:
        """Export the free space in these metrics from now on."""
        self._metrics = metrics
        self._show()

    async def run(self) -> None:
        """Measure periodically, without end."""
        while True:
            is_near = self.space.free_bytes < NEAR_RESERVES * self.space.reserve_bytes
            await asyncio.sleep(NEAR_INTERVAL_S if is_near else INTERVAL_S)
            is_wanted = self.space.is_probe_wanted
            with self._tried_again():
                self._take(await asyncio.to_thread(self._measure, is_wanted=is_wanted))

    def measure_now(self) -> None:
        """Measure once, at once; only ``run`` makes the test write after a failed write."""
        with self._tried_again():
            self._take((free_bytes(self._data_dir), not self.space.is_probe_wanted))

    def _take(self, measured: tuple[int, bool]) -> None:
        space = self.space
        free, is_writable = measured
        space.measured(free, is_writable=is_writable)
        if (
            space.is_low != self._is_logged_low
        ):  # a failed write may have changed it between two measurements
            self._is_logged_low = space.is_low
            if space.is_low:
                logger.error("records are refused: %s", space.refusal(str(self._data_dir)))
            else:
                logger.warning("%s has space again: %d bytes are free", self._data_dir, free)
        self._show()

    def _show(self) -> None:
        if self._metrics is not None:
            self._metrics.disk_measured(self.space.free_bytes, is_full=self.space.is_low)

    def _measure(self, *, is_wanted: bool) -> tuple[int, bool]:
        """Runs on a thread."""
        is_writable = not is_wanted or self._probe()
        free = free_bytes(self._data_dir)
        ballast = self.space.ballast_bytes
        if ballast and free >= self.space.reserve_bytes + 2 * ballast:
            with self._tried_again():
                self._keep_ballast(ballast)
        return free, is_writable

    def _probe(self) -> bool:
        """Whether bytes can be written here: only a write shows a quota."""
        path = self._data_dir / PROBE
        try:
            path.write_bytes(bytes(PROBE_BYTES))
        except OSError as error:
            self._log_failure(error)
            return False
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
        return True

    @contextlib.contextmanager
    def _tried_again(self) -> Iterator[None]:
        """Failures inside are logged and left to the next measurement."""
        try:
            yield
        except OSError as error:
            self._log_failure(error)

    def _log_failure(self, error: OSError) -> None:
        """Once, and again for another error: measurements come ten times a second."""
        if str(error) != self._logged_failure:
            self._logged_failure = str(error)
            logger.warning("measuring the free space of %s failed: %s", self._data_dir, error)

    def _keep_ballast(self, size: int) -> None:
        path = self._data_dir / BALLAST
        if path.exists():
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            self._access.reserve(fd, 0, size)
        finally:
            os.close(fd)


def free_bytes(folder: Path) -> int:
    """The space available to unprivileged users."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
