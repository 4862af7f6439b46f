"""Monitors a replication slot: whether it still exists, and the log that the server retains for it.

A slot that is not read fills the server's disk; a slot that the server invalidated has lost
changes. The first is reported as a gauge and a warning, the second as an error with its remedy.
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
    """Checks the slot at intervals."""

    def __init__(
        self, config: PostgresCdcConfig, folder: Path, now: Callable[[], float] = time.time
    ) -> None:
        self._config = config
        self._folder = folder
        self._now = now
        self._looked_at = float("-inf")

    def look(self, server: PostgresCdcServer) -> None:
        """Report the state of the slot, at most once per ``WATCH_EVERY_S``.

        Raises:
            InvalidRequest: the slot is lost.
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
                "the server retains %d MiB of WAL for slot %s, confirmed up to %s",
                slot.kept_bytes >> 20,
                self._config.slot_name,
                lsn_text(slot.confirmed_lsn),
            )


def lost_slot(config: PostgresCdcConfig, slot: SlotState | None) -> InvalidRequest:
    """The error for changes that are no longer available."""
    if slot is None:
        why = "the slot does not exist"
    elif slot.is_lost:
        why = "the server removed WAL that the slot needed (max_slot_wal_keep_size)"
    else:
        why = f"another reader advanced the slot to {lsn_text(slot.confirmed_lsn)}"
    return InvalidRequest(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{why}: changes are lost",
        subject=config.slot_name,
        remedy="set snapshot_mode: when_needed to read all rows again, or remove the pipeline's "
        "state folder to start over",
    )
