"""Watches a replication slot: whether it is still there, and the log that the server keeps for it.

A slot that nobody reads fills the server's disk; a slot that the server gave up has lost changes.
Both are told: the first as a figure and a warning, the second as a refusal with its remedy.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.cdc.postgres.pgoutput import lsn_text
from mainstem.pipelines.cdc.postgres.server import PostgresCdcServer, SlotState
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.connector.gauges import write_gauges

WATCH_EVERY_S: Final = 10.0

_log = logging.getLogger(__name__)


class SlotMonitor:
    """Looks at the slot now and then."""

    def __init__(
        self, config: PostgresCdcConfig, folder: Path, now: Callable[[], float] = time.time
    ) -> None:
        self._config = config
        self._folder = folder
        self._now = now
        self._looked_at = float("-inf")

    def look(self, server: PostgresCdcServer) -> None:
        """Tell how it is, unless that was done a moment ago.

        Raises:
            InvalidRequest: it is lost.
        """
        if self._now() - self._looked_at < WATCH_EVERY_S:
            return
        self._looked_at = self._now()
        slot = server.slot()
        if slot is None or slot.is_lost:
            raise lost_slot(self._config, slot)
        write_gauges(
            self._folder,
            {"wal_kept_bytes": slot.kept_bytes, "confirmed_lsn": slot.confirmed_lsn},
        )
        if slot.kept_bytes > self._config.wal_warning_bytes:
            _log.warning(
                "the server keeps %d MiB of log for slot %s, confirmed up to %s",
                slot.kept_bytes >> 20,
                self._config.slot_name,
                lsn_text(slot.confirmed_lsn),
            )


def lost_slot(config: PostgresCdcConfig, slot: SlotState | None) -> InvalidRequest:
    """The refusal that tells of changes that cannot be had any more."""
    if slot is None:
        why = "the slot is gone"
    elif slot.is_lost:
        why = "the server threw away log that the slot needed (max_slot_wal_keep_size)"
    else:
        why = f"somebody else moved the slot on to {lsn_text(slot.confirmed_lsn)}"
    return InvalidRequest(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{why}: changes are lost",
        subject=config.slot_name,
        remedy="set snapshot_mode: when_needed to read all rows again, or remove the pipeline's "
        "state folder to begin anew",
    )
