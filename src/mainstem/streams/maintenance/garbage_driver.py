"""Removes what the catalogue released while this node was down: deleted topics, moved ranges.

While a node runs it removes such folders as the facts arrive. A node that was down, or crashed
right after a fact, does it here. Guarantee: what the catalogue may still need, or does not
know, is kept; so are open files.
"""

import asyncio
import logging
from typing import Final

from mainstem.log.store import FoundRangeDirectory, LogStore
from mainstem.model.ids import NodeId
from mainstem.placement.state.cluster_view import is_garbage
from mainstem.placement.state.tables import CatalogueTables
from mainstem.streams.storage_retry_driver import refusal_of

FIRST_S: Final = 10.0
PAUSE_S: Final = 3_600.0

_log = logging.getLogger(__name__)


class GarbageDriver:
    """Removes files of topics and ranges that the catalogue no longer assigns to this node."""

    def __init__(self, store: LogStore, tables: CatalogueTables, node: NodeId) -> None:
        self._store = store
        self._tables = tables
        self._node = node

    async def run(self, first_s: float = FIRST_S, pause_s: float = PAUSE_S) -> None:
        """Collect garbage soon after the start, and again from time to time, until cancelled."""
        await asyncio.sleep(first_s)
        while True:
            await self.collect()
            await asyncio.sleep(pause_s)

    async def collect(self) -> int:
        """Remove what is garbage now; how many ranges and deleted topics that were."""
        try:
            found = await asyncio.to_thread(lambda: list(self._store.scan()))
        except FileNotFoundError:  # a file was removed meanwhile; the next run finds the rest
            return 0
        except OSError as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise
            _log.warning("garbage collection is put off: %s", refusal)
            return 0
        removed = sum(self._remove(one) for one in found)
        if removed:
            _log.info("removed %d ranges or topics that are no longer assigned here", removed)
        return removed

    def _remove(self, found: FoundRangeDirectory) -> bool:
        # Read only now: much may have changed since the folders were listed.
        name = found.name
        if not is_garbage(self._tables, self._node, name.stream, name.index):
            return False
        if name.stream.topic in self._tables.deleted:
            is_there = found.directory.is_dir()
            self._store.drop_topic(name.topic_name, name.stream.topic)
            return is_there
        return self._store.drop_found(found)
