"""PostgreSQL's tables and changes, told by a real server."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.cdc.follow import Following, brief, event
from tests.integration.cdc.postgres import PostgresServer

from mainstem.model.errors import InvalidRequest, MainstemError
from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.cdc.settings import PLACEHOLDER
from mainstem.pipelines.connector.shapes import FindingSeverity
from mainstem.pipelines.connectors.postgres_cdc import SOURCE

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(180)]


Run = Callable[..., list[tuple[Any, ...]]]
TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text)"


def test_rows_come_first_then_every_change_in_order(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    following = Following(config, tmp_path)
    assert brief(following.all()) == [
        ("r", None, {"id": 1, "name": "a"}),
        ("r", None, {"id": 2, "name": "b"}),
    ]
    run("INSERT INTO t VALUES (3, 'c')", "UPDATE t SET name = 'd' WHERE id = 1")
    run("DELETE FROM t WHERE id = 2", "UPDATE t SET id = 4 WHERE id = 3", "TRUNCATE t")
    told = following.all()
    assert brief(told) == [
        ("c", None, {"id": 3, "name": "c"}),
        ("u", None, {"id": 1, "name": "d"}),
        ("d", {"id": 2, "name": None}, None),
        ("tombstone", {"id": 2}),
        ("d", {"id": 3, "name": None}, None),
        ("tombstone", {"id": 3}),
        ("c", None, {"id": 4, "name": "c"}),
        ("t", None, None),
    ]
    assert {each["topic"] for each in told} == {f"cdc.{config.database}.public.t"}
    assert [json.loads(each["key"]) for each in told[:-1]] == [
        {"id": key} for key in (3, 1, 2, 2, 3, 3, 4)
    ]
    assert told[4]["headers"] == [{"key": "__debezium.newkey", "value": b'{"id":4}'}]
    assert told[6]["headers"] == [{"key": "__debezium.oldkey", "value": b'{"id":3}'}]


def test_nothing_keeps_the_server_from_cleaning_up_once_the_rows_are_told(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t VALUES (1, 'a')")
    following = Following(config, tmp_path)
    assert following.all()
    [(waiting,)] = run(
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'"
        " AND query LIKE '%' || current_database() || '%'"
    )
    assert waiting == 0


def test_the_source_of_an_event_names_its_place(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t VALUES (1, 'a')")
    following = Following(msgspec.structs.replace(config, name="shop"), tmp_path)
    [row] = following.all()
    run("INSERT INTO t VALUES (2, 'b')")
    [change] = following.all()
    first, second = event(row)["source"], event(change)["source"]
    assert first["snapshot"] == "last"
    assert second["snapshot"] == "false"
    assert (second["connector"], second["name"]) == ("postgresql", "shop")
    assert (second["db"], second["schema"], second["table"]) == (config.database, "public", "t")
    assert second["lsn"] >= first["lsn"]
    assert second["ts_us"] // 1000 == second["ts_ms"]
    assert event(change)["ts_ms"] >= second["ts_ms"]
    assert list(event(change)) == [
        "before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns",
    ]  # fmt: skip


def test_a_batch_that_is_read_again_is_the_same(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t SELECT n, 'row ' || n FROM generate_series(1, 25) n")
    following = Following(msgspec.structs.replace(config, snapshot_rows_per_file=4), tmp_path)
    for statement in ("SELECT 1", "UPDATE t SET name = name || 'x'", "DELETE FROM t WHERE id > 20"):
        run(statement)
        while (told := following.step(rows_max=10)) is not None:
            assert following.read(*following.batches[-1]) == told
            again = following.again()
            assert again.read(*following.batches[-1]) == told
            again.batches = following.batches
            following = again
    sizes = [end.file - start.file for start, end in following.batches]
    assert sum(sizes) == 7


def test_batches_end_with_transactions_and_keep_the_bound(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE)
    following = Following(config, tmp_path)
    assert following.all() == []
    for first in range(0, 60, 3):
        run(f"INSERT INTO t SELECT n, '' FROM generate_series({first}, {first + 2}) n")
    run("INSERT INTO t SELECT n, '' FROM generate_series(1000, 1099) n")
    sizes = []
    while (told := following.step(rows_max=10)) is not None:
        sizes.append(len(told))
    assert sizes == [9, 9, 9, 9, 9, 9, 6, 100]


def test_a_snapshot_that_was_cut_off_goes_on_behind_its_last_key(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 30) n")
    run("CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    following = Following(msgspec.structs.replace(config, snapshot_rows_per_file=5), tmp_path)
    told = following.step(rows_max=10)
    assert told is not None
    run("UPDATE t SET name = 'new' WHERE id IN (3, 28)", "DELETE FROM t WHERE id IN (4, 29)")
    run("INSERT INTO t VALUES (31, 'new'), (0, 'new')", "UPDATE t SET id = 40 WHERE id = 5")
    run("UPDATE t SET id = -1 WHERE id = 27", "INSERT INTO u VALUES (2)")
    told += following.again().all(rows_max=10)
    _is_told_without_doubling(told, dict(run("SELECT id, name FROM t")))
    others = [each for each in told if each["topic"].endswith(".u")]
    assert [row[0] for row in brief(others)] == ["r", "r"]


def test_rows_that_went_while_a_snapshot_lay_broken_are_not_told_as_gone(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 20) n")
    following = Following(msgspec.structs.replace(config, snapshot_rows_per_file=5), tmp_path)
    told = following.step(rows_max=5)
    assert told is not None
    run("DELETE FROM t WHERE id > 5")
    told += following.again().all(rows_max=5)
    assert [row[0] for row in brief(told)] == ["r"] * 5


def test_a_table_that_was_emptied_before_its_turn_keeps_the_rows_that_the_snapshot_found(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 10) n")
    run("CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    following = Following(msgspec.structs.replace(config, snapshot_rows_per_file=5), tmp_path)
    following.step(rows_max=5)
    again = following.again()  # a snapshot that is under way keeps its tables from being emptied
    run("TRUNCATE u", "INSERT INTO u VALUES (2)")
    told = [each for each in again.all(rows_max=5) if each["topic"].endswith(".u")]
    assert brief(told) == [("r", None, {"id": 2})]
    run("TRUNCATE u")
    assert [row[0] for row in brief(again.all())] == ["t"]


def test_a_table_that_was_emptied_in_the_middle_of_its_snapshot_is_read_again(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t SELECT n, 'old' FROM generate_series(1, 10) n")
    following = Following(msgspec.structs.replace(config, snapshot_rows_per_file=5), tmp_path)
    told = following.step(rows_max=5)
    assert told is not None
    again = following.again()
    run("TRUNCATE t", "INSERT INTO t VALUES (1, 'new')", "INSERT INTO t VALUES (9, 'new')")
    told += again.all(rows_max=1)
    table: dict[bytes, Any] = {}
    for each in told:
        if event(each)["op"] == "t":
            table = {}
        else:
            table[each["key"]] = event(each)["after"]
    assert sorted(row["id"] for row in table.values()) == [1, 9]


def _is_told_without_doubling(told: list[dict[str, Any]], expected: dict[int, str]) -> None:
    table: dict[int, str] = {}
    for each in told:
        if not each["topic"].endswith(".t") or each["value"] is None:
            continue
        key = json.loads(each["key"])["id"]
        decoded = event(each)
        if decoded["op"] == "d":
            del table[key]
        else:
            assert (key in table) == (decoded["op"] == "u"), (decoded["op"], key)
            table[key] = decoded["after"]["name"]
    assert table == expected


def test_a_table_without_a_key_is_told_as_a_whole_or_begun_again(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run("CREATE TABLE t (name text)", "INSERT INTO t SELECT 'x' FROM generate_series(1, 20)")
    settings = msgspec.structs.replace(config, snapshot_rows_per_file=5)
    following = Following(settings, tmp_path)
    told = following.step(rows_max=10)
    assert told is not None
    run("INSERT INTO t VALUES ('y')")
    told += following.again().all(rows_max=10)
    assert [each["key"] for each in told] == [None] * 21
    assert [row[0] for row in brief(told)] == ["r"] * 20 + ["c"]


@pytest.mark.parametrize("mode", ["initial", "when_needed"])
def test_a_lost_slot_fails_at_once_unless_a_new_snapshot_is_wanted(
    config: PostgresCdcConfig, run: Run, tmp_path: Path, mode: str
) -> None:
    run(TABLE, "INSERT INTO t VALUES (1, 'a')")
    config = msgspec.structs.replace(config, snapshot_mode=mode)
    following = Following(config, tmp_path)
    following.all()
    following.follower.close()
    run(f"SELECT pg_drop_replication_slot('{config.slot_name}')", "INSERT INTO t VALUES (2, 'b')")
    again = following.again()
    if mode == "initial":
        with pytest.raises(InvalidRequest, match=r"slot does not exist.*when_needed"):
            again.all()
        return
    assert [row[0] for row in brief(again.all())] == ["r", "r"]
    run("INSERT INTO t VALUES (3, 'c')")
    assert brief(again.all()) == [("c", None, {"id": 3, "name": "c"})]


def test_a_slot_that_somebody_else_moved_is_refused(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE)
    following = Following(config, tmp_path)
    following.all()
    run("INSERT INTO t VALUES (1, 'a')")
    run(f"SELECT pg_replication_slot_advance('{config.slot_name}', pg_current_wal_lsn())")
    with pytest.raises(InvalidRequest, match="another reader advanced the slot"):
        following.again().all()


def test_snapshot_modes_decide_about_rows_that_are_there(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t VALUES (1, 'a')")
    none = Following(msgspec.structs.replace(config, snapshot_mode="no_data"), tmp_path / "none")
    assert none.all() == []
    only = Following(
        msgspec.structs.replace(config, snapshot_mode="initial_only", slot_name="unused"),
        tmp_path / "only",
    )
    assert [row[0] for row in brief(only.all())] == ["r"]
    always = Following(msgspec.structs.replace(config, snapshot_mode="always"), tmp_path / "none")
    always.position = none.position
    none.follower.close()
    run("INSERT INTO t VALUES (2, 'b')")
    assert [row[0] for row in brief(only.all())] == []
    assert [row[0] for row in brief(always.all())] == ["r", "c"]
    run("UPDATE t SET name = 'c' WHERE id = 2", "DELETE FROM t WHERE id = 1")
    assert [row[0] for row in brief(always.again().all())] == ["u", "d", "tombstone"]
    slots = {name for (name,) in run("SELECT slot_name FROM pg_replication_slots")}
    assert "unused" not in slots


def test_large_values_that_did_not_change_are_told_as_such(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY, n int, big text)")
    run("ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    following = Following(config, tmp_path)
    following.all()
    run("INSERT INTO t VALUES (1, 1, repeat('x', 5000))", "UPDATE t SET n = 2")
    run("ALTER TABLE t REPLICA IDENTITY FULL", "UPDATE t SET n = 3")
    told = [event(each) for each in following.all()]
    assert [each["after"]["big"] for each in told] == ["x" * 5000, PLACEHOLDER, "x" * 5000]
    assert told[2]["before"] == {"id": 1, "n": 2, "big": "x" * 5000}


def test_columns_that_come_and_go_are_told_as_they_were(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE)
    following = Following(config, tmp_path)
    following.all()
    run("INSERT INTO t VALUES (1, 'a')", "ALTER TABLE t ADD extra numeric DEFAULT 7")
    run("INSERT INTO t VALUES (2, 'b')", "ALTER TABLE t DROP name", "INSERT INTO t VALUES (3, 1)")
    assert [event(each)["after"] for each in following.all()] == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b", "extra": "7"},
        {"id": 3, "extra": "1"},
    ]


def test_columns_are_left_out_masked_and_made_keys(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id int PRIMARY KEY, mail text, card text, note text)")
    config = msgspec.structs.replace(
        config,
        exclude_columns=("public.t.note", "*.id"),
        mask_columns={"*.card": "truncate:4", "*.mail": "redact"},
        key_columns={"public.t": ("mail",)},
    )
    following = Following(config, tmp_path)
    run("INSERT INTO t VALUES (1, 'a@b', '1234567', 'secret')")
    rows = following.all()
    run("INSERT INTO t VALUES (2, 'a@b', '1234567', 'secret')")
    for told in (*rows, *following.all()):
        assert event(told)["after"] == {"mail": "*" * 10, "card": "1234"}
        assert json.loads(told["key"]) == {"mail": "*" * 10}


def test_transactions_messages_and_heartbeats_go_beside_the_tables(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE)
    config = msgspec.structs.replace(
        config, transaction_metadata=True, heartbeat_interval_ms=1, tables=("public.t",)
    )
    following = Following(config, tmp_path)
    following.step()
    run("BEGIN; INSERT INTO t VALUES (1, 'a'); SELECT pg_logical_emit_message(true, 'p', 'm');"
        " INSERT INTO t VALUES (2, 'b'); COMMIT")  # fmt: skip
    begin, first, said, second, end = following.step() or []
    assert event(begin)["status"] == "BEGIN"
    assert event(first)["transaction"]["total_order"] == 1
    assert event(second)["transaction"]["data_collection_order"] == 2
    assert event(said)["message"] == {"prefix": "p", "content": "bQ=="}
    assert (event(end)["status"], event(end)["event_count"]) == ("END", 3)
    assert [each["topic"] is None for each in (begin, said, end)] == [True] * 3
    [beat] = following.step() or []
    assert json.loads(beat["key"]) == {"serverName": config.database}


def test_skipped_operations_and_tombstones_are_left_out(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE)
    config = msgspec.structs.replace(config, skipped_operations=("u", "t"), tombstones=False)
    following = Following(config, tmp_path)
    following.all()
    run("INSERT INTO t VALUES (1, 'a')", "UPDATE t SET name = 'b'", "DELETE FROM t", "TRUNCATE t")
    assert [row[0] for row in brief(following.all())] == ["c", "d"]


TYPES = {
    "smallint": "-3", "bigint": "9007199254740993", "numeric(12,3)": "-12.345", "real": "1.25",
    "double precision": "'Infinity'", "boolean": "true", "text": "E'tab\\tquote\"back\\\\\\u2603'",
    "char(3)": "'x'", "bytea": "'\\x00ff'", "date": "'0044-03-15 BC'", "time(3)": "'01:02:03.5'",
    "timestamp": "'1969-12-31 23:59:59.999999'", "timestamptz": "'2026-07-01 00:00:00.25+02'",
    "interval": "'-1 day 2 hours'", "uuid": "'6C9F8A50-0000-4000-8000-000000000001'",
    "jsonb": """'{"a": [1, null]}'""", "int[]": "'{{1,2},{null,4}}'",
    "text[]": "ARRAY['a,b', null]",
    "inet": "'10.0.0.1'", "bit(1)": "B'1'", "money": "'-12.5'", "point": "'(1,2)'",
    "int4range": "'[1,5)'", "mood": "'so so'", "positive": "5", "timetz": "'12:00+02'",
}  # fmt: skip


def test_a_row_is_told_the_same_by_snapshot_and_stream(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run("CREATE TYPE mood AS ENUM ('so so')", "CREATE DOMAIN positive AS int CHECK (value > 0)")
    columns = ", ".join(f"c{at} {name}" for at, name in enumerate(TYPES))
    row = ", ".join(f"{value}::{name}" for name, value in TYPES.items())
    run(f"CREATE TABLE t (id int PRIMARY KEY, {columns})", f"INSERT INTO t VALUES (1, {row})")
    modes = itertools.product(("string", "precise"), ("adaptive", "isostring"))
    for number, (decimal_mode, time_mode) in enumerate(modes):
        chosen = msgspec.structs.replace(
            config, decimal_mode=decimal_mode, time_mode=time_mode, slot_name=f"types_{number}"
        )
        following = Following(chosen, tmp_path / str(number))
        [read] = following.all()
        run("DELETE FROM t", f"INSERT INTO t VALUES (1, {row})")
        streamed = following.all()[-1]
        assert event(streamed)["op"] == "c"
        assert event(read)["after"] == event(streamed)["after"]
        following.follower.close()
    days = run("SELECT date '0044-03-15 BC' - date '1970-01-01'")[0][0]
    assert event(Following(config, tmp_path / "last").all()[0])["after"]["c9"] == days


def test_a_rehearsal_changes_nothing(config: PostgresCdcConfig, run: Run, tmp_path: Path) -> None:
    run(TABLE, "INSERT INTO t VALUES (1, 'a')")
    assert len(Following(config, tmp_path, rehearsal=True).all()) == 1
    assert run("SELECT count(*) FROM pg_publication") == [(0,)]
    assert run("SELECT 1 FROM pg_replication_slots WHERE database = current_database()") == []


def test_a_check_says_what_is_missing(
    config: PostgresCdcConfig, run: Run, server: PostgresServer
) -> None:
    run("CREATE TABLE bare (name text)", "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN")

    def errors(**changes: Any) -> str:
        found = SOURCE.check(msgspec.structs.replace(config, **changes))
        return " | ".join(
            f"{each.message} {each.remedy}"
            for each in found
            if each.severity is FindingSeverity.ERROR
        )

    assert errors() == ""
    assert "no primary key" in str(SOURCE.check(config))
    assert "ALTER ROLE reader REPLICATION" in errors(user="reader")
    assert "no table" in errors(tables=("public.nothing",))
    assert "does not exist" in errors(database="no_such_database")
    assert "check host, port" in errors(port=1)
    assert "not a mask" in errors(mask_columns={"*": "rot13"})
    assert "is invalid" in errors(topic_routing="{nothing}")
    run("DROP ROLE reader")


def test_a_publication_of_others_is_used_but_never_changed(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "CREATE TABLE u (id int PRIMARY KEY)")
    config = msgspec.structs.replace(config, publication_autocreate="disabled")
    with pytest.raises(MainstemError, match="CREATE PUBLICATION mainstem"):
        Following(config, tmp_path).all()
    run("CREATE PUBLICATION mainstem FOR TABLE t")
    following = Following(config, tmp_path)
    following.all()
    run("INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1)")
    assert len(following.all()) == 1


def test_partitions_odd_names_and_generated_columns_are_told_as_one_table(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run('CREATE SCHEMA "My Shop"')
    run(
        'CREATE TABLE "My Shop"."100% ""odd""" ("The id" int, day date, twice int'
        ' GENERATED ALWAYS AS ("The id" * 2) STORED, "50%" text, PRIMARY KEY (day, "The id"))'
        " PARTITION BY RANGE (day)"
    )
    for year in (2025, 2026):
        run(
            f'CREATE TABLE "My Shop".y{year} PARTITION OF "My Shop"."100% ""odd"""'
            f" FOR VALUES FROM ('{year}-01-01') TO ('{year + 1}-01-01')"
        )
    insert = 'INSERT INTO "My Shop"."100% ""odd""" ("The id", day, "50%") VALUES '
    run(insert + "(1, '2025-06-01', 'a'), (2, '2026-06-01', 'b')")
    following = Following(msgspec.structs.replace(config, tables=("My Shop.*",)), tmp_path)
    rows = following.all()
    run(insert + "(3, '2026-06-02', '%d')")
    told = [*rows, *following.all()]
    assert {each["topic"] for each in told} == {f"cdc.{config.database}.My_Shop.100___odd_"}
    assert [list(json.loads(each["key"])) for each in told] == [["day", "The id"]] * 3
    assert [event(each)["after"] for each in told] == [
        {"The id": 1, "day": 20240, "50%": "a"},
        {"The id": 2, "day": 20605, "50%": "b"},
        {"The id": 3, "day": 20606, "50%": "%d"},
    ]
    assert event(told[2])["source"]["table"] == '100% "odd"'
