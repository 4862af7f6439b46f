"""Reads closed files again in the background, so that damage is found early."""

import asyncio
from collections.abc import Callable

from mainstem.log.store import LogStore
from mainstem.log.verification.damage import Damage
from mainstem.log.verification.scrubber import STEP_BYTES, Scrubber
from mainstem.model.ids import RangeIndex, StreamId
from mainstem.telemetry import logs
from mainstem.telemetry.metrics import Metrics

# About 20 MB/s: a terabyte takes 14 hours, and other reads are hardly affected.
STEP_PAUSE_S = STEP_BYTES / (20 * 1024 * 1024)

log = logs.logger("streams")


class ScrubDriver:
    """Checks all files of the store once per interval.

    Args:
        store: the files.
        metrics: counts what was found.
        lost: called with which sealed range of a stream is damaged, so that it is copied again.
    """

    def __init__(
        self,
        store: LogStore,
        metrics: Metrics,
        lost: Callable[[StreamId, RangeIndex], None] = lambda _stream, _index: None,
    ) -> None:
        self._store = store
        self._lost = lost
        self._scrubber = Scrubber(lambda: list(store.logs.values()), self._found)
        self._metrics = metrics

    async def run(self, interval_ms: int) -> None:
        """Run rounds without end."""
        while True:
            await asyncio.sleep(interval_ms / 1000)
            for _ in iter(self._scrubber.step, 0):
                await asyncio.sleep(STEP_PAUSE_S)

    def _found(self, damage: Damage) -> None:
        self._metrics.log_corruptions += 1
        log.error("damaged: %s", damage)
        held = self._store.logs.get(damage.path.parent)
        if held is not None and held.sealed:
            self._lost(held.identity.name.stream, RangeIndex(held.identity.name.index))
