"""A PostgreSQL server for change data capture: sessions, slot, publication, catalogue.

Guarantees: every session formats values the same way, whatever the server's defaults; an error of
the server is one sentence with its remedy; a slot that is in use by another session is retried for
a while, because the session of a killed process ends a moment after it.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, LiteralString

import psycopg
from msgspec import Struct
from psycopg import sql

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.pipelines.cdc.postgres.pgoutput import lsn_number, lsn_text
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.postgres.table import PostgresColumn, PostgresTableSchema
from mainstem.pipelines.cdc.postgres.values import TypeInfo
from mainstem.pipelines.cdc.table_selection import is_selected

Connection = psycopg.Connection[tuple[Any, ...]]

SLOT_WAIT_MAX_S: Final = 30.0
SLOT_POLL_S: Final = 0.1
APPLICATION: Final = "mainstem-cdc"
_SESSION: Final = (
    "-c datestyle=ISO -c intervalstyle=iso_8601 -c bytea_output=hex -c timezone=UTC"
    " -c extra_float_digits=3 -c lc_monetary=C -c idle_in_transaction_session_timeout=0"
    " -c statement_timeout=0"
)


class SlotState(Struct, frozen=True):
    """A replication slot; ``kept_bytes`` is the size of the log that the server retains for it."""

    confirmed_lsn: int
    plugin: str
    wal_status: str
    kept_bytes: int

    @property
    def is_lost(self) -> bool:
        """Whether the server has removed log that the slot needs."""
        return self.wal_status == "lost"


class PublishedTable(Struct, frozen=True):
    """A table that is captured; ``is_ordered`` when its keys sort in Python as on the server.

    ``file`` is the number of its file, which changes when it is truncated.
    """

    oid: int
    shape: PostgresTableSchema
    rows_estimate: int
    is_ordered: bool
    identity: str = "d"
    file: int = 0


@contextmanager
def refusals(config: PostgresCdcConfig) -> Iterator[None]:
    """Converts errors of the server to Mainstem errors."""
    try:
        yield
    except psycopg.Error as error:
        raise refusal(error, config) from None


def refusal(error: psycopg.Error, config: PostgresCdcConfig) -> MainstemError:
    """The error in one sentence, with its remedy."""
    subject = f"{config.host}:{config.port}/{config.database}"
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return InvalidRequest(
            ErrorCode.NOT_AUTHORIZED,
            text,
            subject=subject,
            remedy=f"ALTER ROLE {config.user} REPLICATION, and GRANT SELECT on the tables",
        )
    if isinstance(error, psycopg.OperationalError):
        if "authentication failed" in text or "no password" in text:
            return InvalidRequest(
                ErrorCode.AUTHENTICATION_FAILED,
                f"authentication failed for {config.user}",
                subject=subject,
                remedy="check user and password",
            )
        if "does not exist" in text:
            return InvalidRequest(ErrorCode.INVALID_CONFIG, text, subject=subject)
        return Unavailable(
            ErrorCode.COORDINATOR_UNAVAILABLE,
            text,
            subject=subject,
            remedy="check host, port and whether the server runs",
        )
    return InvalidRequest(ErrorCode.INVALID_CONFIG, text, subject=subject)


def connect(config: PostgresCdcConfig, *, replication: bool = False) -> Connection:
    """A session in autocommit mode.

    Raises:
        MainstemError: the server cannot be reached or authentication failed.
    """
    with refusals(config):
        return psycopg.connect(
            host=config.host,
            port=config.port,
            dbname=config.database,
            user=config.user,
            password=config.password,
            sslmode=config.sslmode,
            sslrootcert=config.ssl_root_cert,
            connect_timeout=config.connect_timeout_s,
            application_name=APPLICATION,
            options=_SESSION,
            replication="database" if replication else None,
            autocommit=True,
        )


class PostgresCdcServer:
    """One server, accessed over one session."""

    def __init__(self, config: PostgresCdcConfig) -> None:
        self._config = config
        self.session = connect(config)
        self._types: dict[int, tuple[str, str, int, int, int]] = {}
        self._keys: dict[int, tuple[str, ...]] | None = None
        self._uniques: dict[int, tuple[str, ...]] | None = None

    def close(self) -> None:
        """Close the session."""
        self.session.close()

    def ask(self, statement: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a statement returns.

        Raises:
            MainstemError: the server refuses.
        """
        with refusals(self._config):
            return self.session.execute(statement, values).fetchall()

    def flushed_lsn(self) -> int:
        """The position up to which the server's log is flushed."""
        [(lsn,)] = self.ask("SELECT pg_current_wal_flush_lsn()::text")
        return lsn_number(lsn)

    # The slot.

    def slot(self) -> SlotState | None:
        """The slot; None when it does not exist."""
        rows = self.ask(
            "SELECT confirmed_flush_lsn::text, plugin::text, coalesce(wal_status, ''),"
            " coalesce(pg_current_wal_lsn() - restart_lsn, 0)::bigint, database::text"
            " FROM pg_replication_slots WHERE slot_name = %s",
            self._config.slot_name,
        )
        if not rows:
            return None
        [(confirmed, plugin, status, kept, database)] = rows
        if plugin != "pgoutput" or database != self._config.database:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"the slot belongs to {plugin or 'physical replication'} in {database}",
                subject=self._config.slot_name,
                remedy="choose another slot_name",
            )
        return SlotState(lsn_number(confirmed) if confirmed else 0, plugin, status, kept)

    def drop_slot(self) -> None:
        """Drop the slot; the server may then remove the log that it retained for it."""
        self._when_free("SELECT pg_drop_replication_slot(%s)", self._config.slot_name)

    def advance(self, lsn: int) -> None:
        """Advance the slot: nothing up to ``lsn`` will be requested again."""
        state = self.slot()
        if state is not None and lsn > state.confirmed_lsn:
            self._when_free(
                "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)",
                self._config.slot_name,
                lsn_text(lsn),
            )

    def boundaries(
        self, upto: int, changes_max: int, signal_oid: int = 0
    ) -> list[tuple[int, int, bytes]]:
        """Ends of transactions, messages, and new rows of one table, up to a position.

        Each with its number among all messages since the slot's position, and its LSN.
        """
        return self._when_free(
            "SELECT n, (lsn - '0/0')::bigint, data"
            " FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s,"
            " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')"
            " WITH ORDINALITY AS change(lsn, xid, data, n)"
            " WHERE get_byte(data, 0) IN (67, 77)"
            " OR (get_byte(data, 0) = 73 AND substr(data, 2, 4) = %s)",
            self._config.slot_name,
            lsn_text(upto),
            changes_max,
            self._config.publication_name,
            signal_oid.to_bytes(4, "big"),
        )

    @contextmanager
    def peeked(
        self, upto: int, changes_max: int | None = None
    ) -> Iterator[Iterator[bytes | bytearray | memoryview]]:
        """The slot's messages up to a position: rows of COPY's binary format (LSN, message)."""
        query = sql.SQL(
            "COPY (SELECT lsn, data FROM pg_logical_slot_peek_binary_changes({}, {}, {},"
            " 'proto_version', '1', 'publication_names', {}, 'messages', 'true'))"
            " TO STDOUT (FORMAT binary)"
        ).format(
            sql.Literal(self._config.slot_name),
            sql.Literal(lsn_text(upto)),
            sql.Literal(changes_max),
            sql.Literal(self._config.publication_name),
        )
        # COPY cannot be retried after its start; an empty peek waits until the slot is free.
        self._when_free(
            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, '0/1'::pg_lsn, 1,"
            " 'proto_version', '1', 'publication_names', %s)",
            self._config.slot_name,
            self._config.publication_name,
        )
        with refusals(self._config), self.session.cursor() as cursor, cursor.copy(query) as copy:
            yield iter(copy)

    def _when_free(self, statement: LiteralString, *values: object) -> list[Any]:
        deadline = time.monotonic() + SLOT_WAIT_MAX_S
        while True:
            try:
                with self.session.cursor(binary=True) as cursor:
                    return cursor.execute(statement, values).fetchall()
            except psycopg.errors.ObjectInUse as error:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        ErrorCode.WRITER_UNAVAILABLE,
                        f"the slot is in use by another reader: {error}",
                        subject=self._config.slot_name,
                        remedy="stop the other reader, or choose another slot_name",
                    ) from None
                time.sleep(SLOT_POLL_S)
            except psycopg.Error as error:
                raise refusal(error, self._config) from None

    # The publication.

    def ensure_publication(self, tables: Sequence[PublishedTable]) -> None:
        """Create or update the publication, as configured.

        Raises:
            InvalidRequest: it is missing and may not be created.
        """
        config = self._config
        name = sql.Identifier(config.publication_name)
        found = self.ask(
            "SELECT puballtables FROM pg_publication WHERE pubname = %s", config.publication_name
        )
        if config.publication_autocreate == "disabled":
            if not found:
                raise InvalidRequest(
                    ErrorCode.INVALID_CONFIG,
                    "the publication does not exist, and publication_autocreate is disabled",
                    subject=config.publication_name,
                    remedy=f"CREATE PUBLICATION {config.publication_name} FOR TABLE ...",
                )
            return
        wanted = {each.shape.full_name: each.shape for each in tables}
        chosen = sql.SQL(", ").join(
            sql.Identifier(each.schema, each.name) for each in wanted.values()
        )
        with refusals(config):
            if config.publication_autocreate == "all_tables":
                if not found:
                    self.session.execute(
                        sql.SQL("CREATE PUBLICATION {} FOR ALL TABLES {}").format(name, _AS_ROOT)
                    )
            elif not found:
                made = sql.SQL("CREATE PUBLICATION {} FOR TABLE {} {}").format(
                    name, chosen, _AS_ROOT
                )
                self.session.execute(made)
            elif not found[0][0] and wanted.keys() != self._published():
                changed = sql.SQL("ALTER PUBLICATION {} SET TABLE {}").format(name, chosen)
                self.session.execute(changed)

    def _published(self) -> set[str]:
        rows = self.ask(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s",
            self._config.publication_name,
        )
        return {name for (name,) in rows}

    # The catalogue.

    def tables(self) -> list[PublishedTable]:
        """The tables that the settings select, by name."""
        self._keys = self._uniques = None  # they may have changed since the last call
        rows = self.ask(_TABLES)
        config = self._config
        chosen = [
            row
            for row in rows
            if is_selected(row[1], row[2], config.tables, config.exclude_tables)
            or f"{row[1]}.{row[2]}" == config.signal_table
        ]
        return [self._table(*row) for row in chosen]

    def _table(
        self, oid: int, schema: str, name: str, estimate: int, identity: str, file: int
    ) -> PublishedTable:
        columns = self.ask(_COLUMNS, oid)
        key = self.key_of(oid)
        shape = PostgresTableSchema(
            schema,
            name,
            tuple(
                PostgresColumn(column, self.type_of(type_oid, modifier), column in key)
                for column, type_oid, modifier, _ in columns
            ),
            key,
            self.unique_of(oid),
        )
        sortable = {column: is_sortable for column, _, _, is_sortable in columns}
        is_ordered = bool(key) and all(sortable.get(column, False) for column in key)
        return PublishedTable(oid, shape, max(0, estimate), is_ordered, identity, file)

    def key_of(self, oid: int) -> tuple[str, ...]:
        """The primary key of a table, in the key's order."""
        if self._keys is None:
            self._keys = {table: tuple(names) for table, names in self.ask(_KEYS)}
        return self._keys.get(oid, ())

    def unique_of(self, oid: int) -> tuple[str, ...]:
        """The columns of a table's first unique index, by name, that can be used as a key."""
        if self._uniques is None:
            self._uniques = {}
            for table, names in self.ask(_UNIQUES):
                self._uniques.setdefault(table, tuple(names))
        return self._uniques.get(oid, ())

    def type_of(self, oid: int, modifier: int) -> TypeInfo:
        """A type with its element or base type."""
        if oid not in self._types:
            rows = self.ask(_TYPE, oid)
            if not rows:
                return TypeInfo("text")  # dropped since: its values are written as text
            [self._types[oid]] = rows
        name, kind, element, of_domain, domain_modifier = self._types[oid]
        if kind == "d":
            return self.type_of(of_domain, domain_modifier)
        inner = self.type_of(element, modifier) if element else None
        return TypeInfo(name, modifier, inner)


# A partitioned table is captured as one table, the root, which applications write to.
_AS_ROOT: Final = sql.SQL("WITH (publish_via_partition_root = true)")
_TABLES: Final = """
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.reltuples::bigint,
  c.relreplident::text, c.relfilenode::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%%'
ORDER BY n.nspname, c.relname
"""
_COLUMNS: Final = """
SELECT a.attname::text, a.atttypid::bigint, a.atttypmod,
  a.atttypid IN (20, 21, 23, 2950) OR (a.atttypid IN (25, 1043) AND (
    l.collname IN ('C', 'POSIX') OR (l.collname = 'default' AND (
      SELECT datcollate IN ('C', 'POSIX') FROM pg_database WHERE datname = current_database()))))
FROM pg_attribute a LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
"""
_KEYS: Final = """
SELECT i.indrelid::bigint, array_agg(a.attname::text ORDER BY k.n)
FROM pg_index i CROSS JOIN unnest(i.indkey::int[]) WITH ORDINALITY AS k(attnum, n)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indisprimary AND k.n <= i.indnkeyatts GROUP BY i.indrelid
"""
_UNIQUES: Final = """
SELECT i.indrelid::bigint, array_agg(a.attname::text ORDER BY k.n)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  CROSS JOIN unnest(i.indkey::int[]) WITH ORDINALITY AS k(attnum, n)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
WHERE i.indisunique AND i.indisvalid AND NOT i.indisprimary AND i.indpred IS NULL
  AND i.indexprs IS NULL AND k.n <= i.indnkeyatts
GROUP BY i.indrelid, c.relname HAVING bool_and(a.attnotnull) ORDER BY c.relname
"""
_TYPE: Final = """
SELECT typname::text, typtype::text, CASE WHEN typcategory = 'A' THEN typelem ELSE 0 END::bigint,
  typbasetype::bigint, typtypmod
FROM pg_type WHERE oid = %s
"""
