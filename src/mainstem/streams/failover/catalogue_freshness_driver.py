"""Whether this node's catalogue was the newest a moment ago, confirmed by a majority of voters.

A writer that was deposed and does not know it yet decides on outdated state; a check here before a
final refusal prevents that. Guarantees: ``holds`` never waits; if it is not certain, the voters are
asked, one request at a time, so that a retry soon gets an answer.
"""

import asyncio
import logging
from typing import Final

from mainstem.model.clock import Clock
from mainstem.model.errors import MainstemError
from mainstem.placement.service import PlacementService

SURE_MS: Final = 1_000
ASK_TIMEOUT_S: Final = 1.0

_log = logging.getLogger(__name__)


class CatalogueFreshness:
    """Confirms with a majority of voters that this node's catalogue is current."""

    def __init__(self, placement: PlacementService, clock: Clock) -> None:
        self._placement = placement
        self._clock = clock
        self._confirmed_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def holds(self) -> bool:
        """Whether all that was decided up to a moment ago is known here; if not, start a check."""
        now_s = self._clock.monotonic()
        if now_s - self._confirmed_s < SURE_MS / 1000:
            return True
        if self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask(now_s))
            self._asking.add_done_callback(self._asked)
        return False

    def close(self) -> None:
        """Stop the checks."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self, now_s: float) -> None:
        try:
            await self._placement.confirm(ASK_TIMEOUT_S)
        except MainstemError as refusal:
            _log.debug("the catalogue may be out of date: %s", refusal)
        else:
            self._confirmed_s = now_s

    def _asked(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled():
            task.result()
