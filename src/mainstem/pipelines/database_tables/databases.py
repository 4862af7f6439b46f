"""PostgreSQL and MySQL behind one interface, for table sources and sinks.

Guarantees: sessions use UTC and UTF-8; an error of a server is one sentence with its remedy and
never contains a password; names are quoted, values are always parameters.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable

Kind = Literal["postgres", "mysql"]


class DatabaseServer(Struct, frozen=True, kw_only=True):
    """The connection settings of a database."""

    kind: Kind
    host: str
    port: int
    database: str
    user: str
    password: str | None = None
    tls: str = "prefer"
    ca_path: str | None = None
    connect_timeout_ms: int = 10_000

    @property
    def subject(self) -> str:
        """The server's name in errors."""
        return f"{self.host}:{self.port}/{self.database}"


class DatabaseSession(Protocol):
    """The common interface of both drivers."""

    def cursor(self) -> Any:
        """A cursor to run statements."""

    def commit(self) -> None:
        """Commit the transaction."""

    def rollback(self) -> None:
        """Roll the transaction back."""


class DatabaseColumn(Struct, frozen=True):
    """A column of a table; ``key`` is its index in the primary key, from one, or 0."""

    name: str
    type: str
    nullable: bool
    key: int


@contextmanager
def session(server: DatabaseServer) -> Iterator[DatabaseSession]:
    """A session whose transaction ends with the block: rolled back unless committed.

    Raises:
        MainstemError: an error of the server, here or within the block.
    """
    drivers = _errors(server.kind)
    try:
        opened = _connect(server)
        try:
            yield opened
        finally:
            opened.close()
    except drivers as error:
        raise refusal(error, server) from None


def _connect(server: DatabaseServer) -> Any:
    if server.kind == "postgres":
        import psycopg

        return psycopg.connect(
            host=server.host,
            port=server.port,
            dbname=server.database,
            user=server.user,
            password=server.password,
            sslmode=server.tls,
            sslrootcert=server.ca_path,
            connect_timeout=max(2, server.connect_timeout_ms // 1000),
            application_name="mainstem",
            options="-c timezone=UTC -c datestyle=ISO",
        )
    import pymysql

    connect: Any = pymysql.connect
    return connect(
        host=server.host,
        port=server.port,
        database=server.database,
        user=server.user,
        password=server.password or "",
        charset="utf8mb4",
        connect_timeout=max(2, server.connect_timeout_ms // 1000),
        init_command="SET time_zone = '+00:00', sql_mode = 'STRICT_ALL_TABLES'",
        **_mysql_tls(server),
    )


def _mysql_tls(server: DatabaseServer) -> dict[str, object]:
    if server.tls == "disable":
        return {"ssl_disabled": True}
    if server.tls == "require":
        return {"ssl": {"check_hostname": False, "verify_mode": "none"}}
    if server.tls == "prefer":
        return {}
    return {
        "ssl_ca": server.ca_path,
        "ssl_verify_cert": True,
        "ssl_verify_identity": server.tls == "verify-full",
    }


def _errors(kind: Kind) -> type[Exception]:
    if kind == "postgres":
        import psycopg

        return psycopg.Error
    import pymysql

    return pymysql.MySQLError


def row_errors(kind: Kind) -> tuple[type[Exception], ...]:
    """A driver's error about a value rather than about the server."""
    if kind == "postgres":
        import psycopg

        return (psycopg.DataError, psycopg.IntegrityError)
    import pymysql

    return (pymysql.DataError, pymysql.IntegrityError)


def refusal(error: Exception, server: DatabaseServer) -> MainstemError:
    """The error in one sentence, with its remedy."""
    text = " ".join(str(error).split())[:400] or type(error).__name__
    if server.password:
        text = text.replace(server.password, "***")
    state = str(getattr(error, "sqlstate", None) or "")
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    about_login = "password authentication" in text or "no password supplied" in text
    if state[:2] == "28" or number in {1044, 1045, 1698} or about_login:
        return InvalidRequest(
            ErrorCode.AUTHENTICATION_FAILED,
            text,
            subject=server.subject,
            remedy="check user and password",
        )
    if state == "42501" or number in {1142, 1143, 1227}:
        return InvalidRequest(
            ErrorCode.NOT_AUTHORIZED,
            text,
            subject=server.subject,
            remedy=f"grant {server.user} rights on the table and on the ledger table",
        )
    is_unknown = state in {"42P01", "42703", "3D000"} or number in {1049, 1054, 1146}
    if is_unknown or ('database "' in text and "does not exist" in text):
        return InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE,
            text,
            subject=server.subject,
            remedy="create it, or correct database, table, schema and key",
        )
    if state[:2] in {"22", "23", "42"} or isinstance(error, row_errors(server.kind)):
        return InvalidRequest(ErrorCode.INVALID_RECORD, text, subject=server.subject)
    return Unavailable(
        ErrorCode.TIMED_OUT,
        text,
        subject=server.subject,
        remedy="check that the server runs and is reachable",
    )


def quoted(kind: Kind, name: str) -> str:
    """A name, or ``schema.name``, quoted for a statement."""
    mark = '"' if kind == "postgres" else "`"
    return ".".join(mark + part.replace(mark, mark * 2) + mark for part in name.split("."))


_POSTGRES_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
       coalesce(array_position(i.indkey::int2[], a.attnum) + 1, 0)
FROM pg_attribute a
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_MYSQL_COLUMNS = """
SELECT c.column_name, c.column_type, c.is_nullable = 'YES', coalesce(k.ordinal_position, 0)
FROM information_schema.columns c
LEFT JOIN information_schema.key_column_usage k
  ON k.table_schema = c.table_schema AND k.table_name = c.table_name
 AND k.column_name = c.column_name AND k.constraint_name = 'PRIMARY'
WHERE c.table_schema = coalesce(%s, database()) AND c.table_name = %s
ORDER BY c.ordinal_position
"""
_TABLES = {
    "postgres": """
SELECT n.nspname || '.' || c.relname, c.reltuples::bigint FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg\\_%%' ORDER BY 1 LIMIT 1000
""",
    "mysql": """
SELECT table_name, table_rows FROM information_schema.tables
WHERE table_schema = database() AND table_type = 'BASE TABLE' ORDER BY 1 LIMIT 1000
""",
}


def columns_of_table(opened: DatabaseSession, kind: Kind, table: str) -> list[DatabaseColumn]:
    """The columns of a table; empty when the table does not exist."""
    with opened.cursor() as cursor:
        if kind == "postgres":
            cursor.execute(_POSTGRES_COLUMNS, (quoted(kind, table),))
        else:
            schema, _, name = table.rpartition(".")
            cursor.execute(_MYSQL_COLUMNS, (schema or None, name))
        return [
            DatabaseColumn(str(name), str(type_), bool(nullable), int(key))
            for name, type_, nullable, key in cursor.fetchall()
        ]


def tables_of(opened: DatabaseSession, kind: Kind) -> list[tuple[str, int | None]]:
    """The tables of a database with their estimated numbers of rows."""
    with opened.cursor() as cursor:
        cursor.execute(_TABLES[kind])
        return [(str(n), int(rows) if rows and rows > 0 else None) for n, rows in cursor.fetchall()]
