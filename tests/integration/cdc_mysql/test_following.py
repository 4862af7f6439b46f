"""Rows and changes of a real MariaDB server as records, without Spark."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.cdc.follow import Following, Told, brief, event
from tests.integration.cdc_mysql.mariadb import MariadbServer, purge_logs

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.connector.gauges import read_gauges

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
    '2024-01-02 03:04:05', '2024-01-02 03:04:05.000006', ST_PointFromText('POINT(1 2)'), 'wide')""",
    """(1, 0, 127, 0, 8388607, 2147483647, -16777216, -0.25, 0.5, 999999999, 'a', '', 0, b'1', '',
    '', '', '', '{}', '', '', '', '1000-01-01', '00:00:00', '-00:00:00.500',
    '0000-00-00 00:00:00', '1000-01-01 00:00:00', '2024-01-02 03:04:05', '1970-01-01 00:00:01',
    '2038-01-19 03:14:07.999999', NULL, '')""",
    "(2" + ", NULL" * 31 + ")",
)


Run = Callable[..., tuple[tuple[Any, ...], ...]]


def events(told: list[Told]) -> list[dict[str, Any]]:
    return [event(each) for each in told if each["value"] is not None]


def _differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {name: (one[name], other[name]) for name in one if one[name] != other[name]}


@pytest.mark.parametrize(
    ("mode", "time_mode"),
    [
        ("string", "adaptive_time_microseconds"),
        ("precise", "connect"),
        ("double", "isostring"),
    ],
)
def test_a_row_of_the_log_is_told_as_a_query_tells_it(
    run: Run, config: MysqlCdcConfig, tmp_path: Path, mode: str, time_mode: str
) -> None:
    values = ", ".join(ROWS)
    run(
        "SET sql_mode = ''",
        EVERY_TYPE.format("t"),
        f"INSERT INTO t VALUES {values}",
    )
    followed = Following(
        msgspec.structs.replace(config, decimal_mode=mode, time_mode=time_mode), tmp_path
    )
    queried = followed.all()

    run("SET sql_mode = ''", "DELETE FROM t", f"INSERT INTO t VALUES {values}")
    logged = followed.all()

    before = {each["after"]["id"]: each["after"] for each in events(queried)}
    assert len(before) == len(ROWS)
    gone = {each["before"]["id"]: each["before"] for each in events(logged) if each["op"] == "d"}
    there = {each["after"]["id"]: each["after"] for each in events(logged) if each["op"] == "c"}
    assert all(not _differing(gone[each], before[each]) for each in before)
    assert there == gone


def test_values_are_written_as_the_envelope_has_them(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run(
        "SET sql_mode = '', time_zone = '+00:00'",
        EVERY_TYPE.format("t"),
        f"INSERT INTO t VALUES {ROWS[0]}",
    )
    followed = Following(config, tmp_path)

    [record] = followed.all()

    assert record["topic"] == f"cdc.{config.database}.t"
    assert record["key"] == b'{"id":18446744073709551615}'
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
    server: MariadbServer, run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10))")
    run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    followed = Following(config, tmp_path)
    taken = followed.all()
    run(
        "BEGIN",
        "INSERT INTO t VALUES (3, 'c')",
        "UPDATE t SET v = 'z' WHERE id = 1",
        "UPDATE t SET id = 9 WHERE id = 2",
        "DELETE FROM t WHERE id = 3",
        "COMMIT",
    )

    told = followed.all()
    again = followed.read(*followed.batches[-1])

    marks = [each["source"]["snapshot"] for each in events(taken)]
    assert marks == ["first", "last"]
    assert brief(told) == [
        ("c", None, {"id": 3, "v": "c"}),
        ("u", {"id": 1, "v": "a"}, {"id": 1, "v": "z"}),
        ("d", {"id": 2, "v": "b"}, None),
        ("tombstone", {"id": 2}),
        ("c", None, {"id": 9, "v": "b"}),
        ("d", {"id": 3, "v": "c"}, None),
        ("tombstone", {"id": 3}),
    ]
    assert {each["source"]["connector"] for each in events(told)} == {server.flavour}
    assert len({each["source"]["gtid"] for each in events(told)}) == 1
    moved = [{"key": "__debezium.newkey", "value": b'{"id":9}'}]
    assert told[2]["headers"] == told[3]["headers"] == moved
    assert again == told


def test_rows_are_told_with_the_columns_that_they_had_then_however_late(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    config = msgspec.structs.replace(config, schema_changes_topic="ddl")
    followed = Following(config, tmp_path)
    followed.all()
    run(
        "INSERT INTO t VALUES (1, 1)",
        "ALTER TABLE t ADD COLUMN w VARCHAR(5) FIRST, DROP COLUMN v, MODIFY id BIGINT",
        "INSERT INTO t VALUES ('x', 5000000000)",
        "TRUNCATE TABLE t",
        "FLUSH BINARY LOGS",
        "RENAME TABLE t TO u",
        "INSERT INTO u VALUES ('y', 3)",
        "DROP TABLE u",
    )

    told = followed.again().all()

    rows = [each for each in told if each["topic"] != "ddl"]
    assert [each["after"] for each in events(rows)] == [
        {"id": 1, "v": 1},
        {"w": "x", "id": 5_000_000_000},
        None,
        {"w": "y", "id": 3},
    ]
    assert events(rows)[2]["op"] == "t"
    assert rows[3]["topic"] == f"cdc.{config.database}.u"
    said = [each["ddl"] for each in events([each for each in told if each["topic"] == "ddl"])]
    assert [text.split()[0] for text in said] == ["ALTER", "TRUNCATE", "RENAME", "DROP"]


def test_a_limited_batch_ends_where_a_transaction_ends(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)")
    followed = Following(config, tmp_path)
    followed.all()
    for first in range(0, 30, 3):
        run(f"INSERT INTO t VALUES ({first}), ({first + 1}), ({first + 2})")
    run("INSERT INTO t SELECT id + 100 FROM t")

    sizes = []
    while (batch := followed.step(rows_max=7)) is not None:
        sizes.append(len(batch))

    assert sizes == [6, 6, 6, 6, 6, 30]


def test_columns_are_left_out_masked_and_tables_keyed_as_the_settings_say(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run(
        "CREATE TABLE t (a INT, b VARCHAR(20), c INT)",
        "CREATE TABLE other (a INT)",
        "INSERT INTO t VALUES (1, 'secret', 3)",
        "INSERT INTO other VALUES (1)",
    )
    name = config.database
    config = msgspec.structs.replace(
        config,
        exclude_tables=(f"{name}.other",),
        exclude_columns=(f"{name}.t.c",),
        mask_columns={f"{name}.t.b": "redact"},
        key_columns={f"{name}.t": ("a",)},
        tombstones=False,
    )
    followed = Following(config, tmp_path)
    taken = followed.all()
    run("DELETE FROM t", "INSERT INTO other VALUES (2)")

    told = taken + followed.all()

    assert [each["key"] for each in told] == [b'{"a":1}', b'{"a":1}']
    assert events(told)[0]["after"] == events(told)[1]["before"] == {"a": 1, "b": "**********"}


def test_transactions_are_told_with_their_events_and_count_them(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE u (id INT PRIMARY KEY)")
    followed = Following(msgspec.structs.replace(config, transaction_metadata=True), tmp_path)
    followed.all()
    run("BEGIN", "INSERT INTO t VALUES (1), (2)", "INSERT INTO u VALUES (1)", "COMMIT")
    run("INSERT INTO u VALUES (2)", "CREATE TABLE v (id INT)")

    told = events(followed.all())

    [name] = {each["transaction"]["id"] for each in told[1:4]}
    assert name == told[1]["source"]["gtid"]
    assert [each["transaction"]["total_order"] for each in told[1:4]] == [1, 2, 3]
    assert [each["transaction"]["data_collection_order"] for each in told[1:4]] == [1, 2, 1]
    assert [each.get("status") for each in told] == [
        "BEGIN", None, None, None, "END", "BEGIN", None, "END",
    ]  # fmt: skip
    assert told[4]["event_count"] == 3
    assert told[4]["data_collections"] == [
        {"data_collection": f"{config.database}.t", "event_count": 2},
        {"data_collection": f"{config.database}.u", "event_count": 1},
    ]


def test_a_heartbeat_says_that_all_is_well_and_runs_its_statement(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE beats (id INT PRIMARY KEY, n INT)", "INSERT INTO beats VALUES (1, 0)")
    config = msgspec.structs.replace(
        config,
        exclude_tables=(f"{config.database}.beats",),
        heartbeat_interval_ms=1,
        heartbeat_query=f"UPDATE {config.database}.beats SET n = n + 1",
    )
    followed = Following(config, tmp_path)
    followed.step()

    [beat] = followed.step() or []

    assert json.loads(beat["key"]) == {"serverName": config.database}
    assert run("SELECT n FROM beats") == ((1,),)


def test_what_nobody_follows_makes_no_batches_until_the_log_has_a_new_file(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)")
    config = msgspec.structs.replace(config, tables=(f"{config.database}.t",))
    followed = Following(config, tmp_path)
    followed.all()
    start = followed.position

    run("INSERT INTO other VALUES (1), (2)")
    idle = followed.step()
    run("INSERT INTO other VALUES (3)", "FLUSH BINARY LOGS")
    moved = followed.step()
    run("INSERT INTO t VALUES (1)")
    told = followed.all()

    assert idle is None
    assert moved == []
    assert followed.batches[-2][0] == start
    assert followed.batches[-2][1].spot.file != start.spot.file
    assert brief(told) == [("c", None, {"id": 1})]
    assert read_gauges(tmp_path)["log_behind_bytes"] >= 0


def test_a_log_that_was_thrown_away_is_told_at_once_with_the_remedy(
    server: MariadbServer, run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (0)")
    followed = Following(config, tmp_path)
    followed.all()
    run("INSERT INTO t VALUES (1)")
    purge_logs(server)

    with pytest.raises(InvalidRequest) as refused:
        followed.step()

    assert "changes are lost" in refused.value.cause
    assert "state folder" in refused.value.remedy
    with pytest.raises(InvalidRequest, match="changes are lost"):
        followed.again().step()
    needy = followed.again(msgspec.structs.replace(config, snapshot_mode="when_needed"))
    assert brief(needy.all()) == [("r", None, {"id": 0}), ("r", None, {"id": 1})]
    run("INSERT INTO t VALUES (2)")
    assert brief(needy.all()) == [("c", None, {"id": 2})]


def test_statements_instead_of_rows_are_refused(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)")
    followed = Following(config, tmp_path)
    followed.all()
    run("SET binlog_format = STATEMENT", "INSERT INTO t VALUES (1)")

    with pytest.raises(InvalidRequest, match="statement instead of rows"):
        followed.step()
