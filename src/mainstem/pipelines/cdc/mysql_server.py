"""A MySQL or MariaDB server as change data capture needs it: sessions, catalogue, log.

The log is had the way ``mysqlbinlog`` has it, as a replica without a number of its own: nothing is
registered at the server, readers do not push one another out, and a dump ends with the log.
PyMySQL is spoken to here and nowhere else.
"""

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pymysql
from pymysql.converters import conversions
from pymysql.cursors import SSCursor

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.pipelines.cdc.mysql_binlog import Checksums
from mainstem.pipelines.cdc.mysql_changes import Origin
from mainstem.pipelines.cdc.mysql_settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql_table import Spot, TableShape
from mainstem.pipelines.cdc.mysql_values import ColumnType
from mainstem.pipelines.cdc.selection import matches

READ_TIMEOUT_S: Final = 120
_COM_BINLOG_DUMP: Final = 0x12
_NON_BLOCKING: Final = 1
_SERVER_ID: Final = 0
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


@contextmanager
def refusals(config: MysqlCdcConfig) -> Iterator[None]:
    """Turns what the server says into a refusal of the house."""
    try:
        yield
    except (pymysql.err.Error, OSError) as error:
        raise refusal(error, config) from None


def refusal(error: Exception, config: MysqlCdcConfig) -> MainstemError:
    """One sentence, and what helps."""
    subject = f"{config.host}:{config.port}/{config.database}"
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    said = " ".join(str(error.args[-1] if error.args else error).split())
    if code == _LOST_LOG:
        return lost_log(subject, said)
    if code in _DENIED:
        return InvalidRequest(
            ErrorCode.NOT_AUTHORIZED,
            said,
            subject=subject,
            remedy="check user and password, and GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR"
            " (MySQL: REPLICATION CLIENT)",
        )
    if isinstance(error, OSError) or code in _GONE or code == 0:
        return Unavailable(
            ErrorCode.COORDINATOR_UNAVAILABLE,
            said or type(error).__name__,
            subject=subject,
            remedy="check host, port and whether the server runs",
        )
    return InvalidRequest(ErrorCode.INVALID_CONFIG, said, subject=subject)


def lost_log(subject: str, why: str) -> InvalidRequest:
    """The refusal that tells of changes that cannot be had any more."""
    return InvalidRequest(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"the server's log is not what it was, changes are lost: {why}",
        subject=subject,
        remedy="remove the pipeline's state folder to read all rows again, and let the server keep"
        " its log longer (binlog_expire_logs_seconds)",
    )


class Server:
    """One server, asked over one session."""

    def __init__(self, config: MysqlCdcConfig) -> None:
        self._config = config
        with refusals(config):
            self._session: Any = _connect(config)
            for statement in _SESSION:
                self.run(statement)
        [(said,)] = self.ask("SELECT version()")
        self.version: str = said
        self.flavour = "mariadb" if "mariadb" in said.lower() else "mysql"

    def close(self) -> None:
        """End the session."""
        if self._session.open:
            self._session.close()

    def run(self, statement: str) -> None:
        """A statement that answers nothing."""
        with refusals(self._config), self._session.cursor() as cursor:
            cursor.execute(statement)

    def ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a statement's answer, as text.

        Raises:
            MainstemError: the server refuses.
        """
        with refusals(self._config), self._session.cursor() as cursor:
            cursor.execute(statement, values or None)
            return [tuple(_told(value) for value in row) for row in cursor.fetchall()]

    def setting(self, name: str) -> str:
        """A setting of the server; empty when it has none of the name."""
        rows = self.ask("SHOW GLOBAL VARIABLES LIKE %s", name)
        return str(rows[0][1]) if rows else ""

    def origin(self) -> Origin:
        """What readers of the log have to know about the server."""
        # Newer collations of MariaDB have their numbers in a table of their own.
        has_applicability = self.ask(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = 'information_schema'"
            " AND table_name = 'COLLATION_CHARACTER_SET_APPLICABILITY' AND column_name = 'ID'"
        )
        place = "collation_character_set_applicability" if has_applicability else "collations"
        listed = self.ask(
            f"SELECT id, character_set_name FROM information_schema.{place} WHERE id IS NOT NULL"  # noqa: S608
        )
        return Origin(self.flavour, {int(number): name for number, name in listed})

    # The log.

    def end_of_log(self) -> Spot:
        """Where the next transaction will be written.

        Raises:
            InvalidRequest: the server keeps no log.
        """
        if self.flavour == "mariadb" or self.version < "8.2":
            rows = self.ask("SHOW MASTER STATUS")
        else:
            rows = self.ask("SHOW BINARY LOG STATUS")
        if not rows:
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                "the server keeps no binary log",
                subject=f"{self._config.host}:{self._config.port}",
                remedy="start it with log_bin, binlog_format = ROW, binlog_row_metadata = FULL",
            )
        return Spot(rows[0][0], int(rows[0][1]))

    def require(self, spot: Spot) -> None:
        """Make sure that the log still goes back to a place.

        Raises:
            InvalidRequest: it does not, or it is another server's.
        """
        sizes = {row[0]: int(row[1]) for row in self.ask("SHOW BINARY LOGS")}
        subject = f"{spot.file}:{spot.position}"
        if spot.file not in sizes:
            raise lost_log(subject, f"it begins with {min(sizes, default='nothing')}")
        if spot.position > sizes[spot.file]:
            raise lost_log(subject, f"the file has {sizes[spot.file]} bytes")

    def events(self, start: Spot) -> Iterator[bytes]:
        """The events from a place to the end of the log; this session is for nothing else then.

        Raises:
            MainstemError: the log does not go back so far, or the server went away.
        """
        for name in ("master_binlog_checksum", "source_binlog_checksum"):
            self.run(f"SET @{name} = @@global.binlog_checksum")
        checksums = Checksums(is_on=self.setting("binlog_checksum").upper() == "CRC32")
        self.run("SET @mariadb_slave_capability = 4")
        asked = (
            start.position.to_bytes(4, "little")
            + _NON_BLOCKING.to_bytes(2, "little")
            + _SERVER_ID.to_bytes(4, "little")
            + start.file.encode()
        )
        session = self._session
        with refusals(self._config):
            session._execute_command(_COM_BINLOG_DUMP, asked)  # there is no public way
            while True:
                packet = session._read_packet()
                if packet.is_eof_packet():
                    return
                yield checksums.bare(packet.get_all_data()[1:])

    # The catalogue and the rows.

    def tables(self, chosen: Sequence[str], excluded: Sequence[str] = ()) -> list[TableShape]:
        """The tables that patterns choose, by name."""
        names = self.ask(
            "SELECT table_schema, table_name FROM information_schema.tables"
            " WHERE table_type = 'BASE TABLE' AND table_schema NOT IN %s"
            " ORDER BY table_schema, table_name",
            _SYSTEM,
        )
        return [
            self._shape(database, name)
            for database, name in names
            if matches(f"{database}.{name}", chosen) and not matches(f"{database}.{name}", excluded)
        ]

    def _shape(self, database: str, name: str) -> TableShape:
        columns = self.ask(
            "SELECT column_name, data_type, coalesce(numeric_precision, 0),"
            " coalesce(numeric_scale, 0), coalesce(datetime_precision, 0)"
            " FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " ORDER BY ordinal_position",
            database,
            name,
        )
        keyed = self.ask(
            "SELECT column_name FROM information_schema.statistics WHERE table_schema = %s"
            " AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index",
            database,
            name,
        )
        return TableShape(
            database,
            name,
            tuple((each[0], _type(each[1], *map(int, each[2:]))) for each in columns),
            tuple(column for (column,) in keyed),
        )

    def rows_estimate(self, shape: TableShape) -> int:
        """About how many rows a table has."""
        rows = self.ask(
            "SELECT coalesce(table_rows, 0) FROM information_schema.tables"
            " WHERE table_schema = %s AND table_name = %s",
            shape.database,
            shape.name,
        )
        return int(rows[0][0]) if rows else 0

    def begin_snapshot(self) -> Spot:
        """Begin a transaction that sees one moment, and say which: where the log stood then."""
        self.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if self.flavour == "mariadb":
            self.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            told = dict(self.ask("SHOW STATUS LIKE 'binlog_snapshot_%'"))
            return Spot(told["Binlog_snapshot_file"], int(told["Binlog_snapshot_position"]))
        self.run("FLUSH TABLES WITH READ LOCK")
        try:
            self.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return self.end_of_log()
        finally:
            self.run("UNLOCK TABLES")

    def rows(self, shape: TableShape) -> Iterator[tuple[bytes | None, ...]]:
        """The rows of a table; numbers of 32 bits come with all their digits."""
        columns = ", ".join(
            f"CAST({quoted(name)} AS DOUBLE)" if of.word == "float" else quoted(name)
            for name, of in shape.columns
        )
        place = f"{quoted(shape.database)}.{quoted(shape.name)}"
        with refusals(self._config), self._session.cursor(SSCursor) as cursor:
            cursor.execute(f"SELECT {columns} FROM {place}")  # noqa: S608  # names are quoted
            while row := cursor.fetchone():
                yield row


def quoted(name: str) -> str:
    """A name as SQL wants it."""
    return "`" + name.replace("`", "``") + "`"


def _connect(config: MysqlCdcConfig) -> Any:
    secured: ssl.SSLContext | None = None
    if config.ssl != "disable":
        secured = ssl.create_default_context(cafile=config.ssl_root_cert)
        if config.ssl == "require":
            secured.check_hostname = False
            secured.verify_mode = ssl.CERT_NONE
    return pymysql.connect(
        host=config.host,
        port=config.port,
        user=config.user,
        password=config.password or "",
        ssl=secured,
        charset="utf8mb4",
        use_unicode=False,
        # Values stay the text that the server sent; only what is sent to it is written by PyMySQL.
        conv={kind: write for kind, write in conversions.items() if not isinstance(kind, int)},
        autocommit=True,
        connect_timeout=config.connect_timeout_s,
        read_timeout=READ_TIMEOUT_S,
        write_timeout=READ_TIMEOUT_S,
        program_name="mainstem-cdc",
    )


def _told(value: object) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _type(word: str, precision: int, scale: int, moment_digits: int) -> ColumnType:
    digits = {"decimal": scale, "bit": precision}.get(word, moment_digits)
    if word in _DIGITS:
        return ColumnType(word, digits)
    for known, name in ((_INTEGERS, "int"), (_BINARIES, "bytes"), (_SHAPES, "geometry")):
        if word in known:
            return ColumnType(name)
    return ColumnType(word if word in _PLAIN else "text")
