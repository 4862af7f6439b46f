"""Scans the binary log without decoding rows: ends of transactions, tables, signals. Pure.

This costs a fraction of decoding and determines in advance where a batch can end.
"""

import logging
from collections.abc import Sequence

import msgspec

from mainstem.pipelines.cdc import snapshot_stamps as stamping
from mainstem.pipelines.cdc.mysql import binlog as log
from mainstem.pipelines.cdc.mysql.change_decoder import (
    MysqlCatalogue,
    MysqlChangeDecoder,
    MysqlLogSpan,
    databases,
    is_followed,
    truncated,
)
from mainstem.pipelines.cdc.mysql.gtid import GtidState
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig, Operation
from mainstem.pipelines.cdc.signals import Signal, from_row
from mainstem.pipelines.cdc.table_selection import matches

_log = logging.getLogger(__name__)


class BinlogScanner:
    """Scans events and stops at positions where no transaction is open.

    ``spot`` and ``gtid`` are the last such position; ``signals`` and ``emptied`` (tables that were
    truncated after a part of their snapshot) have their positions in the log.
    """

    def __init__(
        self, config: MysqlCdcConfig, origin: MysqlCatalogue, span: MysqlLogSpan, gtid: str
    ) -> None:
        self._config = config
        self._decoder = MysqlChangeDecoder(_listening(config), (), origin, span)
        self._queries: list[tuple[int, log.Query]] = []
        self._decoder.queries = self._queries
        self._stamps = stamping.Stamps(stamping.decode(span.stamps))
        self._gtids = GtidState(gtid)
        self._has_touched = False
        self.start = self.spot = span.start
        self.passed_bytes = 0
        self.is_touched = False
        self.signals: list[tuple[int, Signal]] = []
        self.emptied: list[tuple[int, str]] = []

    @property
    def gtid(self) -> str:
        """The GTID set at ``spot``."""
        return self._gtids.text

    def passes(self, event: bytes) -> bool:
        """Process the next event; returns whether a batch may end after it."""
        decoder = self._decoder
        self.passed_bytes += len(event)
        for record in decoder.decode(event):
            self._listen(record.value)
        if event[4] == log.TABLE_MAP:
            self._has_touched |= is_followed(log.table_name(event), self._config)
        return decoder.is_between and decoder.spot.order > self.spot.order

    def settle(self) -> None:
        """Move ``spot`` to the end of the last event."""
        for place, query in self._queries:
            self._note(place, query)
        self.spot = self._decoder.spot
        if self._decoder.gtid:
            self._gtids.add(self._decoder.gtid)
        self.is_touched |= self._has_touched
        self._has_touched = False

    def mentions(self, table: str) -> bool:
        """Whether a schema change since the start may concern this table."""
        return any(table.lower() in query.text.lower() for _, query in self._queries)

    def _note(self, place: int, query: log.Query) -> None:
        if matches(query.database, databases(self._config)):
            self._has_touched = True
        name = truncated(query)
        if name is None or not is_followed(name, self._config):
            return
        self._has_touched = True
        stamps = self._stamps
        is_partly_read = place < stamps.until and stamps.concerns(name)
        if is_partly_read and not stamps.holds(name, (), place):
            self.emptied.append((place, name))

    def _listen(self, value: bytes | None) -> None:
        event = msgspec.json.decode(value or b"null")
        try:
            self.signals.append((self._decoder.spot.order, from_row(list(event["after"].values()))))
        except ValueError as error:
            _log.warning("%s", error)


def _listening(config: MysqlCdcConfig) -> MysqlCdcConfig:
    """The settings for capturing inserted rows of the signal table only."""
    return plain(config, (config.signal_table or "",), skipped=("u", "d", "t"))


def plain(
    config: MysqlCdcConfig, tables: Sequence[str], *, skipped: tuple[Operation, ...] = ()
) -> MysqlCdcConfig:
    """The settings for capturing tables with their primary keys and unmodified values."""
    return MysqlCdcConfig(
        host=config.host,
        port=config.port,
        database=config.database,
        tables=tuple(tables),
        skipped_operations=skipped,
        tombstones=False,
    )
