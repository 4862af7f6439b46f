"""A MySQL or MariaDB server for change data capture: sessions, catalogue, binary log.

Only this module uses PyMySQL.
"""

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import pymysql
from pymysql.converters import conversions
from pymysql.cursors import SSCursor

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.pipelines.cdc.mysql.binlog import Checksums
from mainstem.pipelines.cdc.mysql.change_decoder import MysqlCatalogue, databases
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql.table import MysqlTableSchema, key_literal
from mainstem.pipelines.cdc.mysql.values import DECLARED, ColumnType
from mainstem.pipelines.cdc.table_selection import matches

READ_TIMEOUT_S: Final = 120
_LOST_LOG: Final = 1236
_DENIED: Final = frozenset({1044, 1045, 1142, 1143, 1227, 1698})
_GONE: Final = range(2000, 2100)
_SYSTEM: Final = ("information_schema", "mysql", "performance_schema", "sys")
_SESSION: Final = (
    "SET SESSION time_zone = '+00:00'",
    "SET SESSION sql_mode = ''",
    "SET SESSION net_write_timeout = 3600, net_read_timeout = 3600, wait_timeout = 28800",
)
_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_DIGITS: Final = frozenset({"decimal", "bit", "time", "datetime", "timestamp"})
_PLAIN: Final = frozenset({"float", "double", "date"})
_BINARIES: Final = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_SHAPES: Final = frozenset(
    {
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    }
)


# Types of keys that the server compares in the order in which it sorts them. Enumerations are not
# among them: they are sorted by number and compared by name.
_CHUNKABLE: Final = frozenset(
    {"char", "varchar", "binary", "varbinary", "date", "datetime", "timestamp", "decimal", "uuid"}
) | (_INTEGERS - {"year"})
# Of these, the ones that Python compares like the server; strings have collations.
_ORDERED: Final = _CHUNKABLE - {"char", "varchar", "decimal", "uuid"}
Row = tuple[bytes | None, ...]


@contextmanager
def refusals(config: MysqlCdcConfig) -> Iterator[None]:
    """Converts errors of the server to Mainstem errors."""
    try:
        yield
    except (pymysql.err.Error, OSError) as error:
        raise refusal(error, config) from None


def refusal(error: Exception, config: MysqlCdcConfig) -> MainstemError:
    """The error in one sentence, with its remedy."""
    subject = f"{config.host}:{config.port}/{config.database}"
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = " ".join(str(error.args[-1] if error.args else error).split())
    if code == _LOST_LOG:
        return lost_log(subject, text)
    if code in _DENIED:
        return InvalidRequest(
            ErrorCode.NOT_AUTHORIZED,
            text,
            subject=subject,
            remedy="check user and password, and GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR"
            " (MySQL: REPLICATION CLIENT)",
        )
    if isinstance(error, OSError) or code in _GONE or code == 0:
        return Unavailable(
            ErrorCode.COORDINATOR_UNAVAILABLE,
            text or type(error).__name__,
            subject=subject,
            remedy="check host, port and whether the server runs",
        )
    return InvalidRequest(ErrorCode.INVALID_CONFIG, text, subject=subject)


def lost_log(subject: str, why: str) -> InvalidRequest:
    """The error for changes that are no longer in the log."""
    return InvalidRequest(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"changes are lost, the binary log does not match the stored position: {why}",
        subject=subject,
        remedy="set snapshot_mode: when_needed to read all rows again, or remove the pipeline's"
        " state folder to start over; keep binary logs longer"
        " (binlog_expire_logs_seconds)",
    )


class MysqlCdcServer:
    """One server, accessed over one session."""

    def __init__(self, config: MysqlCdcConfig) -> None:
        self.config = config
        with refusals(config):
            self._session: Any = _connect(config)
            for statement in _SESSION:
                self.run(statement)
        [(text,)] = self.ask("SELECT version()")
        self.version: str = text
        self.flavour = "mariadb" if "mariadb" in text.lower() else "mysql"

    def close(self) -> None:
        """Close the session."""
        if self._session.open:
            self._session.close()

    def run(self, statement: str) -> None:
        """Run a statement that returns no rows."""
        with refusals(self.config), self._session.cursor() as cursor:
            cursor.execute(statement)

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows that a statement returns, as text.

        Raises:
            MainstemError: the server refuses.
        """
        with refusals(self.config), self._session.cursor() as cursor:
            cursor.execute(statement, values or None)
            return [tuple(_text(value) for value in row) for row in cursor.fetchall()]

    def setting(self, name: str) -> str:
        """A variable of the server; empty when it does not exist."""
        rows = self.ask("SHOW GLOBAL VARIABLES LIKE %s", name)
        return str(rows[0][1]) if rows else ""

    def origin(self) -> MysqlCatalogue:
        """Properties of the server that are needed to decode its log."""
        # Newer collations of MariaDB have their numbers in a separate table.
        has_applicability = self.ask(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = 'information_schema'"
            " AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"
        )
        place = "collation_character_set_applicability" if has_applicability else "collations"
        listed = self.ask(
            f"SELECT id, character_set_name FROM information_schema.{place} WHERE id IS NOT NULL"  # noqa: S608
        )
        charsets = {int(number): name for number, name in listed}
        return MysqlCatalogue(self.flavour, charsets, _declared(self), _uniques(self))

    # The log.

    def end_of_log(self) -> BinlogPosition:
        """Where the next transaction will be written.

        Raises:
            InvalidRequest: the server has no binary log.
        """
        return self._end_of_log()[0]

    def _end_of_log(self) -> tuple[BinlogPosition, str]:
        is_older = self.flavour == "mariadb" or self.version < "8.2"
        rows = self.ask("SHOW MASTER STATUS" if is_older else "SHOW BINARY LOG STATUS")
        if not rows:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                "the binary log of the server is disabled",
                subject=f"{self.config.host}:{self.config.port}",
                remedy="start it with log_bin, binlog_format = ROW, binlog_row_metadata = FULL",
            )
        file, position, *_, names = rows[0]
        return BinlogPosition(file, int(position)), "" if self.flavour == "mariadb" else names

    @property
    def identity(self) -> str:
        """The server's identity within its replication group."""
        return self.setting("server_id" if self.flavour == "mariadb" else "server_uuid")

    def files(self) -> dict[str, int]:
        """The files of the log, oldest first, with their sizes in bytes."""
        return {row[0]: int(row[1]) for row in self.ask("SHOW BINARY LOGS")}

    def require(self, spot: BinlogPosition) -> None:
        """Check that the log still contains a position.

        Raises:
            InvalidRequest: it does not, or it is the log of another server.
        """
        sizes = self.files()
        if spot.file not in sizes:
            raise lost_log(str(spot), f"its first file is {next(iter(sizes), 'missing')}")
        if spot.position > sizes[spot.file]:
            raise lost_log(str(spot), f"the file has only {sizes[spot.file]} bytes")

    def dump(self, command: int, asked: bytes) -> Iterator[bytes]:
        """The events that a dump command returns; the session can do nothing else then.

        Raises:
            MainstemError: the log does not reach back that far, or the connection was lost.
        """
        for name in ("master_binlog_checksum", "source_binlog_checksum"):
            self.run(f"SET @{name} = @@global.binlog_checksum")
        checksums = Checksums(is_on=self.setting("binlog_checksum").upper() == "CRC32")
        self.run("SET @mariadb_slave_capability = 4")
        session = self._session
        with refusals(self.config):
            session._execute_command(command, asked)  # PyMySQL has no public API for this
            while True:
                packet = session._read_packet()
                if packet.is_eof_packet():
                    return
                yield checksums.bare(packet.get_all_data()[1:])

    # The catalogue and the rows.

    def tables(self, chosen: Sequence[str], excluded: Sequence[str] = ()) -> list[MysqlTableSchema]:
        """The tables that match the patterns, by name."""
        names = self.ask(
            "SELECT table_schema, table_name FROM information_schema.tables"
            " WHERE table_type = 'BASE TABLE' AND table_schema NOT IN %s",
            _SYSTEM,
        )
        uniques = _uniques(self)
        return [
            self._shape(database, name, uniques.get(f"{database}.{name}", ()))
            for database, name in sorted(names)  # not by the server's collation
            if matches(f"{database}.{name}", chosen) and not matches(f"{database}.{name}", excluded)
        ]

    def _shape(self, database: str, name: str, unique: tuple[str, ...]) -> MysqlTableSchema:
        columns = self.ask(
            "SELECT column_name, data_type, coalesce(numeric_precision, 0),"
            " coalesce(numeric_scale, 0), coalesce(datetime_precision, 0)"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " ORDER BY ordinal_position",
            database,
            name,
        )
        keyed = self.ask(
            "SELECT column_name, sub_part FROM information_schema.statistics WHERE table_schema ="
            " %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index",
            database,
            name,
        )
        key = tuple(column for column, _ in keyed)
        words = {each[0]: each[1] for each in columns}
        is_whole = bool(key) and all(part is None for _, part in keyed)
        return MysqlTableSchema(
            database,
            name,
            tuple((each[0], _type(each[1], *map(int, each[2:]))) for each in columns),
            key,
            is_whole and all(words[column] in _CHUNKABLE for column in key),
            is_whole and all(words[column] in _ORDERED for column in key),
            unique,
        )

    def rows_estimate(self, shape: MysqlTableSchema) -> int:
        """The estimated number of rows of a table."""
        rows = self.ask(
            "SELECT coalesce(table_rows, 0) FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s",
            shape.database,
            shape.name,
        )
        return int(rows[0][0]) if rows else 0

    def begin_snapshot(self) -> tuple[BinlogPosition, str]:
        """Start a transaction with a consistent snapshot; returns its position in the log."""
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if self.flavour == "mariadb":
            self.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            status = dict(self.ask("SHOW STATUS LIKE 'binlog_snapshot_%'"))
            spot = BinlogPosition(
                status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])
            )
            return spot, self.mariadb_gtid_at(spot)
        self.run("FLUSH TABLES WITH READ LOCK")
        try:
            self.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return self._end_of_log()
        finally:
            self.run("UNLOCK TABLES")

    def mariadb_gtid_at(self, spot: BinlogPosition) -> str:
        """The GTID set of a position in the log; empty if the position is invalid."""
        [(name,)] = self.ask("SELECT BINLOG_GTID_POS(%s, %s)", spot.file, spot.position)
        return name or ""

    def has_rows(self, shape: MysqlTableSchema) -> bool:
        """Whether a table has any row."""
        return bool(self.ask(f"SELECT 1 FROM {_place(shape)} LIMIT 1"))  # noqa: S608

    def rows(
        self,
        shape: MysqlTableSchema,
        after: Sequence[str] | None = None,
        rows_max: int | None = None,
    ) -> Iterator[Row]:
        """The rows of a table; 32-bit floating-point numbers are read with all their digits.

        A chunkable table is read in the order of its key, after ``after`` if that is given.
        """
        columns = ", ".join(
            f"CAST({quoted(name)} AS DOUBLE)" if of.word == "float" else quoted(name)
            for name, of in shape.columns
        )
        asked = f"SELECT {columns} FROM {_place(shape)}"  # noqa: S608 - names are quoted
        if shape.is_chunkable:
            if after is not None:
                names = [quoted(name) for name in shape.key]
                asked += f" WHERE {_behind(names, [key_literal(each) for each in after])}"
            asked += f" ORDER BY {', '.join(map(quoted, shape.key))}"
        if rows_max is not None:
            asked += f" LIMIT {rows_max}"
        with refusals(self.config):
            cursor = self._session.cursor(SSCursor)
            try:
                cursor.execute(asked)
                while row := cursor.fetchone():
                    yield row
            finally:
                self._leave(cursor)

    def _leave(self, cursor: Any) -> None:
        """Close a cursor; a session with unread rows cannot be used for anything else."""
        result, cursor.connection = cursor._result, None
        if result is not None and result.unbuffered_active:
            result.unbuffered_active = False  # PyMySQL would read all remaining rows
            self.close()


def _place(shape: MysqlTableSchema) -> str:
    return f"{quoted(shape.database)}.{quoted(shape.name)}"


def _behind(names: Sequence[str], values: Sequence[str]) -> str:
    """The condition of rows after a key.

    The first column is also compared separately: servers use the index for that, but not for a
    comparison of several columns.
    """
    equal = [f"{name} = {value}" for name, value in zip(names, values, strict=True)]
    ways = [" AND ".join([*equal[:at], f"{names[at]} > {values[at]}"]) for at in range(len(names))]
    return f"{names[0]} >= {values[0]} AND (({') OR ('.join(ways)}))"


def quoted(name: str) -> str:
    """A quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def _connect(config: MysqlCdcConfig) -> Any:
    secured = _secured(config.ssl, config.ssl_root_cert)
    session: Any = pymysql.connect(
        host=config.host,
        port=config.port,
        user=config.user,
        password=config.password or "",
        ssl=secured,
        ssl_disabled=secured is None,
        charset="utf8mb4",
        use_unicode=False,
        # Values stay the text that the server sent; PyMySQL only converts parameters.
        conv={kind: write for kind, write in conversions.items() if not isinstance(kind, int)},
        autocommit=True,
        connect_timeout=config.connect_timeout_s,
        read_timeout=READ_TIMEOUT_S,
        write_timeout=READ_TIMEOUT_S,
        program_name="mainstem-cdc",
        defer_connect=True,
    )
    session._ssl_required = config.ssl in {
        "require",
        "verify",
    }  # PyMySQL has no public API for this
    session.connect()
    return session


@lru_cache
def _secured(mode: str, root_cert: str | None) -> ssl.SSLContext | None:
    """The TLS context of sessions; created once, because loading certificates is slow."""
    if mode == "verify":
        return ssl.create_default_context(cafile=root_cert)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return None if mode == "disable" else context


def _text(value: object) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _in_schemas(config: MysqlCdcConfig) -> tuple[str, object]:
    """A condition and its value; the server finds one database without opening all others."""
    [first, *others] = dict.fromkeys(databases(config))
    if others or any(letter in first for letter in "*?["):
        return "table_schema NOT IN %s", _SYSTEM
    return "table_schema = %s", first


def _declared(server: MysqlCdcServer) -> dict[str, str]:
    condition, value = _in_schemas(server.config)
    rows = server.ask(
        "SELECT table_schema, table_name, column_name, data_type"  # noqa: S608
        f" FROM information_schema.columns WHERE data_type IN %s AND {condition}",
        DECLARED,
        value,
    )
    return {".".join(row[:3]): row[3] for row in rows}


def _uniques(server: MysqlCdcServer) -> dict[str, tuple[str, ...]]:
    """The columns of each table's first unique index that can be used as a key."""
    condition, value = _in_schemas(server.config)
    rows = server.ask(
        "SELECT table_schema, table_name, index_name, column_name, nullable, sub_part"  # noqa: S608
        " FROM information_schema.statistics"
        f" WHERE non_unique = 0 AND index_name <> 'PRIMARY' AND {condition}",
        value,
    )
    indexes: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for database, name, index, column, nullable, part in rows:
        is_fit = column is not None and nullable != "YES" and part is None
        indexes.setdefault((f"{database}.{name}", index), []).append((column, is_fit))
    found: dict[str, tuple[str, ...]] = {}
    for (table, _), columns in indexes.items():
        if all(is_fit for _, is_fit in columns):
            found.setdefault(table, tuple(column for column, _ in columns))
    return found


def _type(word: str, precision: int, scale: int, moment_digits: int) -> ColumnType:
    digits = {"decimal": scale, "bit": precision}.get(word, moment_digits)
    if word in _DIGITS:
        return ColumnType(word, digits, precision if word == "decimal" else 0)
    if word == "point":
        return ColumnType(word)
    for known, name in ((_INTEGERS, "int"), (_BINARIES, "bytes"), (_SHAPES, "geometry")):
        if word in known:
            return ColumnType(name)
    return ColumnType(word if word in _PLAIN else "text")
