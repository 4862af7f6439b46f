"""Rows and changes of a real MariaDB server as records, without Spark."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.cdc_mysql.mariadb import MariadbServer

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.cdc.envelope import Record
from mainstem.pipelines.cdc.mysql_follower import Follower, Position, log_records
from mainstem.pipelines.cdc.mysql_settings import MysqlCdcConfig
from mainstem.pipelines.cdc.mysql_snapshot import read_spool

pytestmark = [pytest.mark.needs("mariadb"), pytest.mark.timeout(120)]

EVERY_TYPE = """CREATE TABLE `{}` (
  id BIGINT UNSIGNED PRIMARY KEY, y YEAR, t TINYINT, s SMALLINT UNSIGNED, m MEDIUMINT, i INT,
  f FLOAT, d DOUBLE, n DECIMAL(20,5), w DECIMAL(9,0), e ENUM('a','b'), g SET('x','y','z'),
  b1 BIT(1), b BIT(12), c CHAR(5), v VARCHAR(300), l VARCHAR(20) CHARACTER SET latin1, x TEXT,
  j JSON, fixed BINARY(4), bin VARBINARY(10), lob BLOB, da DATE, ti TIME, ti3 TIME(3),
  dt DATETIME, dt3 DATETIME(3), dt6 DATETIME(6), ts TIMESTAMP NULL, ts6 TIMESTAMP(6) NULL,
  p POINT, wide CHAR(200) CHARACTER SET utf8mb4)"""
ROWS = (
    """(18446744073709551615, 2024, -128, 65535, -8388608, -2147483648, 0.1, 1e300,
    -123456789012345.00001, 0, 'b', 'x,z', 1, b'100000000001', 'ab', REPEAT('ü', 300), 'ä€',
    '汉字', '{"a": [1, null]}', 'a', x'00ff', x'0001', '2024-02-29', '-838:59:59', '01:02:03.004',
    '1969-12-31 23:59:59', '2024-01-02 03:04:05.678', '9999-12-31 23:59:59.999999',
    '2024-01-02 03:04:05', '2024-01-02 03:04:05.000006', PointFromText('POINT(1 2)'), 'wide')""",
    """(1, 0, 127, 0, 8388607, 2147483647, -16777216, -0.25, 0.5, 999999999, 'a', '', 0, b'1', '',
    '', '', '', '{}', '', '', '', '1000-01-01', '00:00:00', '-00:00:00.500',
    '0000-00-00 00:00:00', '1000-01-01 00:00:00', '2024-01-02 03:04:05', '1970-01-01 00:00:01',
    '2038-01-19 03:14:07.999999', NULL, '')""",
    "(2" + ", NULL" * 31 + ")",
)


class Followed:
    """A pipeline's driver and its tasks in one."""

    def __init__(self, server: MariadbServer, database: str, folder: Path, **more: Any) -> None:
        given = {"host": "127.0.0.1", "port": server.port, "database": database, **more}
        self.config = MysqlCdcConfig(**given)
        self.folder = folder
        self.follower = Follower(self.config, folder, ())
        self.position = Position()

    def batch(self, rows_max: int | None = None) -> list[Record]:
        """The records of the next batch."""
        begun = self.position
        self.position = self.follower.next(begun, rows_max, None)
        return list(self.told(begun, self.position))

    def told(self, begun: Position, until: Position) -> Iterator[Record]:
        for number in range(begun.files, until.files):
            for batch in read_spool(self.folder, number):
                yield from _records(batch)
        if begun.files == until.files and begun.spot.file and begun.spot != until.spot:
            yield from log_records(self.config, (), begun, until)

    def all(self) -> list[Record]:
        """Everything until now."""
        found: list[Record] = []
        while True:
            before = self.position
            found += self.batch()
            if self.position == before:
                return found


def _records(batch: pa.RecordBatch) -> Iterator[Record]:
    for row in batch.to_pylist():
        yield Record(row["topic"], row["key"], row["value"], 0)


def events(records: list[Record]) -> list[dict[str, Any]]:
    return [json.loads(each.value) for each in records if each.value is not None]


def _differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}


@pytest.mark.parametrize("mode", ["string", "precise", "double"])
@pytest.mark.parametrize("time_mode", ["adaptive_time_microseconds", "connect", "isostring"])
def test_a_row_of_the_log_is_told_as_a_query_tells_it(
    server: MariadbServer, database: str, tmp_path: Path, mode: str, time_mode: str
) -> None:
    values = ", ".join(ROWS)
    server.run(
        "SET sql_mode = ''",
        EVERY_TYPE.format("t"),
        f"INSERT INTO t VALUES {values}",
        database=database,
    )
    followed = Followed(server, database, tmp_path, decimal_mode=mode, time_mode=time_mode)
    queried = followed.all()

    server.run(
        "SET sql_mode = ''", "DELETE FROM t", f"INSERT INTO t VALUES {values}", database=database
    )
    logged = followed.all()

    before = {each["after"]["id"]: each["after"] for each in events(queried)}
    assert len(before) == len(ROWS)
    gone = {each["before"]["id"]: each["before"] for each in events(logged) if each["op"] == "d"}
    there = {each["after"]["id"]: each["after"] for each in events(logged) if each["op"] == "c"}
    assert all(not _differing(gone[each], before[each]) for each in before)
    assert there == gone


def test_values_are_written_as_the_envelope_has_them(
    server: MariadbServer, database: str, tmp_path: Path
) -> None:
    server.run(
        "SET sql_mode = '', time_zone = '+00:00'",
        EVERY_TYPE.format("t"),
        f"INSERT INTO t VALUES {ROWS[0]}",
        database=database,
    )
    followed = Followed(server, database, tmp_path)

    [record] = followed.all()

    assert record.topic == f"cdc.{database}.t"
    assert record.key == b'{"id":18446744073709551615}'
    assert events([record])[0]["op"] == "r"
    row = events([record])[0]["after"]
    assert (row["y"], row["f"], row["d"]) == (2024, 0.1, 1e300)
    assert (row["n"], row["w"]) == ("-123456789012345.00001", "0")
    assert (row["e"], row["g"], row["b1"], row["b"]) == ("b", "x,z", True, "AQg=")
    assert (row["c"], row["l"], row["x"]) == ("ab", "ä€", "汉字")
    assert (row["fixed"], row["bin"]) == ("YQAAAA==", "AP8=")
    assert (row["da"], row["ti"], row["ti3"]) == (19782, -3020399000000, 3723004000)
    assert (row["dt"], row["dt3"]) == (-1000, 1704164645678)
    assert (row["ts"], row["ts6"]) == ("2024-01-02T03:04:05Z", "2024-01-02T03:04:05.000006Z")
    assert row["dt6"] == 253402300799999999


def test_changes_follow_the_snapshot_without_a_gap_and_are_told_the_same_again(
    server: MariadbServer, database: str, tmp_path: Path
) -> None:
    server.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        database=database,
    )
    followed = Followed(server, database, tmp_path)
    taken = followed.batch()
    server.run(
        "BEGIN",
        "INSERT INTO t VALUES (3, 'c')",
        "UPDATE t SET v = 'z' WHERE id = 1",
        "UPDATE t SET id = 9 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "COMMIT",
        database=database,
    )

    begun = followed.position
    told = followed.batch()
    again = list(followed.told(begun, followed.position))

    marks = [each["source"]["snapshot"] for each in events(taken)]
    assert marks == ["first", "last"]
    assert [(json.loads(each.key or b"")["id"], each.value is None) for each in told] == [
        (3, False),
        (1, False),
        (2, False),
        (2, True),
        (9, False),
        (3, False),
        (3, True),
    ]
    assert [each["op"] for each in events(told)] == ["c", "u", "d", "c", "d"]
    assert events(told)[1]["before"] == {"id": 1, "v": "a"}
    assert {each["source"]["connector"] for each in events(told)} == {"mariadb"}
    assert len({each["source"]["gtid"] for each in events(told)}) == 1
    assert told[2].headers == (("__debezium.newkey", b'{"id":9}'),)
    assert again == told


def test_rows_are_told_with_the_columns_that_they_had_then(
    server: MariadbServer, database: str, tmp_path: Path
) -> None:
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", database=database)
    followed = Followed(server, database, tmp_path, schema_changes_topic="ddl")
    followed.all()
    server.run(
        "INSERT INTO t VALUES (1, 1)",
        "ALTER TABLE t ADD COLUMN w VARCHAR(5) FIRST, DROP COLUMN v",
        "INSERT INTO t VALUES ('x', 2)",
        "TRUNCATE TABLE t",
        "FLUSH BINARY LOGS",
        "RENAME TABLE t TO u",
        "INSERT INTO u VALUES ('y', 3)",
        "DROP TABLE u",
        database=database,
    )

    told = followed.all()

    rows = [each for each in told if each.topic != "ddl"]
    assert [each["after"] for each in events(rows)] == [
        {"id": 1, "v": 1},
        {"w": "x", "id": 2},
        None,
        {"w": "y", "id": 3},
    ]
    assert events(rows)[2]["op"] == "t"
    assert rows[3].topic == f"cdc.{database}.u"
    said = [each["ddl"] for each in events([each for each in told if each.topic == "ddl"])]
    assert [text.split()[0] for text in said] == ["ALTER", "TRUNCATE", "RENAME", "DROP"]


def test_a_limited_batch_ends_where_a_transaction_ends(
    server: MariadbServer, database: str, tmp_path: Path
) -> None:
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    followed = Followed(server, database, tmp_path)
    followed.all()
    for first in range(0, 30, 3):
        server.run(
            f"INSERT INTO t VALUES ({first}), ({first + 1}), ({first + 2})", database=database
        )
    server.run("INSERT INTO t SELECT id + 100 FROM t", database=database)

    sizes = []
    while batch := followed.batch(rows_max=7):
        sizes.append(len(batch))

    assert sizes == [6, 6, 6, 6, 6, 30]


def test_columns_are_left_out_masked_and_tables_keyed_as_the_settings_say(
    server: MariadbServer, database: str, tmp_path: Path
) -> None:
    server.run(
        "CREATE TABLE t (a INT, b VARCHAR(20), c INT)",
        "CREATE TABLE other (a INT)",
        "INSERT INTO t VALUES (1, 'secret', 3)",
        "INSERT INTO other VALUES (1)",
        database=database,
    )
    followed = Followed(
        server,
        database,
        tmp_path,
        exclude_tables=(f"{database}.other",),
        exclude_columns=(f"{database}.t.c",),
        mask_columns={f"{database}.t.b": "redact"},
        key_columns={f"{database}.t": ("a",)},
        tombstones=False,
    )
    taken = followed.all()
    server.run("DELETE FROM t", "INSERT INTO other VALUES (2)", database=database)

    told = taken + followed.all()

    assert [each.key for each in told] == [b'{"a":1}', b'{"a":1}']
    assert events(told)[0]["after"] == events(told)[1]["before"] == {"a": 1, "b": "**********"}


def test_a_log_that_was_thrown_away_is_told_at_once_with_the_remedy(
    server: MariadbServer, database: str, tmp_path: Path
) -> None:
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    followed = Followed(server, database, tmp_path)
    followed.all()
    server.run("INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS", database=database)
    [(newest, *_), *_] = server.run("SHOW MASTER STATUS")
    deadline = time.monotonic() + 30
    while len(server.run("SHOW BINARY LOGS")) > 1:  # the engine lets go of a file in its own time
        assert time.monotonic() < deadline
        server.run(f"PURGE BINARY LOGS TO '{newest}'")
        time.sleep(0.05)

    with pytest.raises(InvalidRequest) as refused:
        followed.batch()

    assert "changes are lost" in refused.value.cause
    assert "state folder" in refused.value.remedy


def test_statements_instead_of_rows_are_refused(
    server: MariadbServer, database: str, tmp_path: Path
) -> None:
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    followed = Followed(server, database, tmp_path)
    followed.all()
    server.run("SET binlog_format = STATEMENT", "INSERT INTO t VALUES (1)", database=database)

    with pytest.raises(InvalidRequest, match="statement instead of rows"):
        followed.batch()
