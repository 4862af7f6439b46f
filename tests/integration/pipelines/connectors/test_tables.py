"""Tables of real servers: the suite, batches that break off, upserts and deletes, bad rows."""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cdc.postgres import PostgresServer
from tests.integration.pipelines.connectors.mariadb import MariaDbServer

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.connector.batches import BatchIdentity
from mainstem.pipelines.connector.shapes import ConnectorContext, FindingSeverity
from mainstem.pipelines.connectors import mysql, postgres
from mainstem.pipelines.database_tables import sink as _table_sink
from mainstem.pipelines.database_tables.databases import DatabaseServer, Kind
from mainstem.pipelines.database_tables.sink import SinkTable, write_batch
from mainstem.testing.connector_suite import SinkSuite, SourceSuite

pytestmark = pytest.mark.timeout(240)

NUMBERS = "number bigint, text string, at string"


class Database:
    """A database of one of the servers."""

    def __init__(self, kind: Kind, port: int, opened: Any) -> None:
        self.kind = kind
        self.port = port
        self.opened = opened
        self.name = "postgres" if kind == "postgres" else "shop"
        self.user = "postgres" if kind == "postgres" else "root"

    def run(self, statement: str, rows: list[Any] | None = None) -> list[tuple[Any, ...]]:
        with self.opened.cursor() as cursor:
            if rows is None:
                cursor.execute(statement)
            else:
                cursor.executemany(statement, rows)
            return list(cursor.fetchall()) if rows is None and cursor.description else []

    @property
    def config(self) -> dict[str, object]:
        return {"database": self.name, "user": self.user, "port": self.port}

    def server(self) -> DatabaseServer:
        return DatabaseServer(
            kind=self.kind, host="127.0.0.1", port=self.port, database=self.name, user=self.user
        )

    @property
    def connectors(self) -> Any:
        return postgres if self.kind == "postgres" else mysql


DATABASES = [
    pytest.param("postgres", marks=pytest.mark.needs("postgres")),
    pytest.param("mysql", marks=pytest.mark.needs("mariadb")),
]


@pytest.fixture(scope="module", params=DATABASES)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    with contextlib.ExitStack() as stack:
        if request.param == "postgres":
            running = stack.enter_context(PostgresServer())
            yield Database("postgres", running.port, stack.enter_context(running.connect()))
            return
        maria = stack.enter_context(MariaDbServer())
        with contextlib.closing(maria.connect()) as first, first.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
        yield Database(
            "mysql", maria.port, stack.enter_context(contextlib.closing(maria.connect("shop")))
        )


_names = itertools.count()


@pytest.fixture
def table(database: Database) -> str:
    name = f"numbers_{next(_names)}"
    database.run(
        f"CREATE TABLE {name} (number bigint PRIMARY KEY, text varchar(40), at varchar(40))"
    )
    return name


class TestTableSink(SinkSuite):
    @pytest.fixture(autouse=True)
    def _table(self, database: Database, table: str) -> None:
        self.database, self.table = database, table
        self.connector = database.connectors.SINK  # type: ignore[misc]

    def config(self, tmp_path: Path) -> dict[str, object]:
        place = {"table": self.table, "schema": NUMBERS, "mode": "insert"}
        return {**self.database.config, **place}

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {**self.config(tmp_path), "table": "no_such_table"}

    def written(self, tmp_path: Path) -> list[bytes]:
        rows = self.database.run(f"SELECT number, text, at FROM {self.table}")
        named = [dict(zip(("number", "text", "at"), row, strict=True)) for row in rows]
        return [json.dumps(row, separators=(",", ":")).encode() for row in named]


class TestTableSource(SourceSuite):
    rows = 25

    @pytest.fixture(autouse=True)
    def _table(self, database: Database, table: str) -> None:
        self.database, self.table = database, table
        self.connector = database.connectors.SOURCE  # type: ignore[misc]
        rows = [(n, f"text {n}", "now") for n in range(self.rows)]
        database.run(f"INSERT INTO {table} VALUES (%s, %s, %s)", rows)

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {**self.database.config, "table": self.table}

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {**self.config(tmp_path), "column": "no_such_column"}


class Letters:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def send(self, refused: Any) -> None:
        self.rows += refused.collect()


def upserts(database: Database, table: str) -> SinkTable:
    return SinkTable(
        server=database.server(),
        table=table,
        schema=NUMBERS,
        mode="upsert",
        key=("number",),
        ledger="mainstem_ledger",
    )


def changes(spark: Any, rows: Sequence[tuple[str, dict[str, Any] | None]]) -> Any:
    made = [(key.encode(), None if row is None else json.dumps(row).encode()) for key, row in rows]
    return spark.createDataFrame(made, "key binary, value binary").coalesce(1)


def row(number: int, text: str) -> dict[str, Any]:
    return {"number": number, "text": text, "at": "x"}


class Killed(Exception):
    """The process ends here."""


def test_a_batch_that_is_killed_or_repeated_is_there_once(
    spark: Any, tmp_path: Path, database: Database, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ConnectorContext(pipeline="sinks.t", state_dir=tmp_path)
    target = SinkTable(
        server=database.server(),
        table=table,
        schema=NUMBERS,
        mode="insert",
        key=(),
        ledger="mainstem_ledger",
    )
    for number in range(3):
        batch = BatchIdentity("query", number)
        rows = [("", row(number * 10 + n, "t")) for n in range(10)]
        with monkeypatch.context() as patched:

            def killed(*given: object) -> None:
                raise Killed

            # Between the rows and the ledger: the transaction never commits.
            patched.setattr(_table_sink, "_note", killed)
            with pytest.raises(Killed):
                write_batch(changes(spark, rows), batch, target, context)
        write_batch(changes(spark, rows), batch, target, context)
        write_batch(changes(spark, rows), batch, target, context)

    found = Counter(number for (number,) in database.run(f"SELECT number FROM {table}"))
    assert found == Counter(range(30))
    # A fresh checkpoint is another query: its batch 0 is another batch.
    other = [("", row(1000, "other"))]
    write_batch(changes(spark, other), BatchIdentity("another", 0), target, context)
    assert database.run(f"SELECT text FROM {table} WHERE number = 1000") == [("other",)]


def test_the_last_change_of_a_key_wins_and_tombstones_delete(
    spark: Any, tmp_path: Path, database: Database, table: str
) -> None:
    context = ConnectorContext(pipeline="sinks.t", state_dir=tmp_path)
    first = [("1", row(1, "a")), ("2", row(2, "b")), ("1", row(1, "a2")), ("3", row(3, "c"))]
    second = [('{"number": 2}', None), ("3", None), ("3", row(3, "again")), ("4", None)]

    target = upserts(database, table)
    write_batch(changes(spark, first), BatchIdentity("q2", 0), target, context)
    write_batch(changes(spark, second), BatchIdentity("q2", 1), target, context)

    found = database.run(f"SELECT number, text FROM {table} ORDER BY number")
    assert found == [(1, "a2"), (3, "again")]


def test_a_row_that_the_database_does_not_take_is_a_dead_letter(
    spark: Any, tmp_path: Path, database: Database, table: str
) -> None:
    letters = Letters()
    context = ConnectorContext(pipeline="sinks.t", state_dir=tmp_path, dead_letters=letters)
    rows = [
        ("1", row(1, "fits")),
        ("2", row(2, "x" * 50)),
        ("3", row(3, "too")),
        ("", {"text": "n"}),
    ]

    write_batch(changes(spark, rows), BatchIdentity("q3", 0), upserts(database, table), context)

    assert database.run(f"SELECT number FROM {table} ORDER BY number") == [(1,), (3,)]
    refused = {json.loads(bytes(each.value))["number"]: each.error for each in letters.rows}
    assert set(refused) == {2, None}
    assert "null" in refused[None]

    strict = ConnectorContext(pipeline="sinks.t", state_dir=tmp_path)
    with pytest.raises(InvalidRequest, match="dead_letter_topic"):
        write_batch(changes(spark, rows), BatchIdentity("q3", 1), upserts(database, table), strict)
    assert len(database.run(f"SELECT number FROM {table}")) == 2


def test_timestamps_and_whole_tables_are_followed(
    spark: Any, tmp_path: Path, database: Database
) -> None:
    name = f"events_{next(_names)}"
    database.run(f"CREATE TABLE {name} (id int PRIMARY KEY, changed timestamp(6) NULL)")
    moments = [(n, f"2026-01-01 00:00:{n // 2:02}") for n in range(10)]
    database.run(f"INSERT INTO {name} VALUES (%s, %s)", moments)
    source = database.connectors.SOURCE
    for given in ({"mode": "timestamp", "column": "changed"}, {"mode": "bulk"}):
        config = source.spec().config(**database.config, table=name, **given)
        assert source.check(config)[0].severity is FindingSeverity.OK
        context = ConnectorContext(pipeline="p", state_dir=tmp_path, streaming=False)
        rows = source.read(spark, config, context).collect()
        assert [json.loads(bytes(each.value))["id"] for each in rows] == list(range(10))
        assert {bytes(each.key) for each in rows} == {str(n).encode() for n in range(10)}


def test_a_wrong_password_and_a_server_that_is_away_are_findings(
    database: Database, table: str
) -> None:
    sink = database.connectors.SINK
    config = {**database.config, "table": table, "schema": NUMBERS, "mode": "insert"}
    away = sink.check(sink.spec().config(**{**config, "port": 9}))
    assert away[0].severity is FindingSeverity.ERROR
    assert away[0].retriable
    unknown = sink.check(sink.spec().config(**{**config, "database": "nowhere"}))
    assert unknown[0].severity is FindingSeverity.ERROR
    assert not unknown[0].retriable
    if database.kind == "mysql":
        wrong = sink.check(sink.spec().config(**{**config, "password": "hunter2hunter2"}))
        assert not wrong[0].retriable
        assert "hunter2hunter2" not in wrong[0].message
