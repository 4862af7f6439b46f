"""Rows that were there already, and rows that are read again, of a real MariaDB server."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.cdc.follow import Copy, Following, Told, brief, event
from tests.integration.cdc_mysql.mariadb import numbers

from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.connector.progress import read_progress

pytestmark = [pytest.mark.needs("mariadb"), pytest.mark.timeout(120)]

Run = Callable[..., tuple[tuple[Any, ...], ...]]


def rows_of(run: Run, table: str = "t") -> dict[bytes, dict[str, Any]]:
    names = [name for name, *_ in run(f"SHOW COLUMNS FROM {table}")]
    return {
        json.dumps({"id": row[0]}, separators=(",", ":")).encode(): dict(
            zip(names, row, strict=True)
        )
        for row in run(f"SELECT * FROM {table}")
    }


def marks(told: list[Told]) -> list[str]:
    return [event(each)["source"]["snapshot"] for each in told]


def test_a_snapshot_that_was_cut_off_goes_on_behind_the_last_key(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    run(f"INSERT INTO t SELECT seq, 0 FROM {numbers(10)}")
    config = msgspec.structs.replace(config, snapshot_rows_per_file=3)
    first, copy = Following(config, tmp_path), Copy()
    copy.take(first.step(rows_max=3) or [])
    run("UPDATE t SET v = 1", "DELETE FROM t WHERE id IN (2, 7)", "INSERT INTO t VALUES (11, 0)")
    run("UPDATE t SET id = 12 WHERE id = 1", "UPDATE t SET id = 2 WHERE id = 8")

    second = first.again()
    rest = second.all(rows_max=3)
    copy.take(rest)
    run("UPDATE t SET v = 2")
    copy.take(second.all())

    snapshot = [json.loads(each["key"])["id"] for each in rest if event_op(each) == "r"]
    assert snapshot == [4, 5, 6, 9, 10, 11, 12]
    assert copy.rows == rows_of(run)


def test_rows_that_went_while_a_snapshot_lay_broken_are_not_told_as_gone(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY)", f"INSERT INTO t SELECT seq FROM {numbers(20)}")
    first = Following(msgspec.structs.replace(config, snapshot_rows_per_file=5), tmp_path)
    told = first.step(rows_max=5) or []
    run("DELETE FROM t WHERE id > 5")

    told += first.again().all(rows_max=5)

    assert [row[0] for row in brief(told)] == ["r"] * 5


def event_op(told: Told) -> str | None:
    return None if told["value"] is None else event(told)["op"]


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("a INT, b VARBINARY(4), PRIMARY KEY (b, a)", ("b", "a")),
        ("a BIGINT UNSIGNED, b DATETIME(3), PRIMARY KEY (a, b)", ("a", "b")),
        ("a VARCHAR(10) PRIMARY KEY, b INT", ("a",)),
        ("a ENUM('z', 'y', 'x') PRIMARY KEY, b INT", ("a",)),
        ("a INT, b INT", ()),
    ],
)
def test_every_row_is_told_once_whatever_its_key_is_made_of(
    run: Run, config: MysqlCdcConfig, tmp_path: Path, columns: str, key: tuple[str, ...]
) -> None:
    run(f"CREATE TABLE t ({columns})", "SET sql_mode = ''")
    draw = random.Random(columns)
    given = set()
    for _ in range(20):
        a = draw.choice(["z", "y", "x"]) if "ENUM" in columns else str(draw.randrange(30))
        b = {"b VARB": f"x'{draw.randbytes(2).hex()}'", "b DATE": f"'2024-01-0{a[0]}'"}
        given.add(f"('{a}', {next((b[each] for each in b if each in columns), 1)})")
    run(f"INSERT IGNORE INTO t VALUES {', '.join(sorted(given))}")
    expected = len(run("SELECT * FROM t"))
    config = msgspec.structs.replace(config, snapshot_rows_per_file=2)

    following = Following(config, tmp_path)
    told: list[Told] = []
    while (batch := following.step(rows_max=2)) is not None:
        told += batch
        following = following.again()

    assert len({each["value"].partition(b'"source"')[0] for each in told}) == expected
    assert len(told) == expected
    assert all(tuple(json.loads(each["key"] or b"{}")) == key for each in told)


def test_a_table_without_an_ordered_key_is_told_when_it_is_on_disk_as_a_whole(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id VARCHAR(5) PRIMARY KEY, v INT)")
    run(f"INSERT INTO t SELECT seq, 0 FROM {numbers(10)}")
    config = msgspec.structs.replace(config, snapshot_rows_per_file=3)
    first = Following(config, tmp_path)
    taken = first.step(rows_max=3) or []
    second, copy = first.again(), Copy()
    run("DELETE FROM t WHERE id = '10'", "UPDATE t SET v = 1")

    copy.take(taken + second.all(rows_max=3))

    assert len(taken) == 3
    assert copy.ops.count("r") == 10
    assert copy.rows == rows_of(run)


def test_a_table_that_was_emptied_while_its_snapshot_lay_broken_is_read_again(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY)")
    run(f"INSERT INTO t SELECT seq, 0 FROM {numbers(10)}", "INSERT INTO u VALUES (1)")
    config = msgspec.structs.replace(config, snapshot_rows_per_file=3)
    first = Following(config, tmp_path)
    told = first.step(rows_max=3) or []
    second = first.again()  # a snapshot that is under way keeps its tables from being altered
    run("TRUNCATE t", "INSERT INTO t VALUES (1, 1)", "INSERT INTO t VALUES (9, 9)")
    run("TRUNCATE u", "INSERT INTO u VALUES (2)")

    told += second.all(rows_max=1)

    table: dict[str, dict[bytes, Any]] = {"t": {}, "u": {}}
    for each in told:
        change = event(each)
        rows = table[change["source"]["table"]]
        if change["op"] == "t":
            rows.clear()
        else:
            rows[each["key"]] = change["after"]
    assert table["t"] == rows_of(run)
    assert table["u"] == rows_of(run, "u")


@pytest.mark.parametrize("seed", [1, 2])
def test_readers_end_up_with_the_table_whatever_happens_in_between(
    run: Run, config: MysqlCdcConfig, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE s (id INT, type TEXT, data TEXT)",
    )
    run(f"INSERT INTO t SELECT seq * 3, 0 FROM {numbers(30)}")
    config = msgspec.structs.replace(
        config,
        snapshot_rows_per_file=4,
        tables=(f"{config.database}.t",),
        signal_table=f"{config.database}.s",
    )
    following, copy = Following(config, tmp_path), Copy()

    for turn in range(60):
        what = draw.random()
        if what < 0.5:
            copy.take(following.step(draw.choice([3, 5, None] if turn > 20 else [3, 5])) or [])
        elif what < 0.65:
            following = following.again()
        elif what < 0.7:
            # A batch that was planned and never told: Spark asks for the same again.
            following.follower.next(following.position, 3, None)
            following = following.again()
        elif what < 0.75:
            run("INSERT INTO s VALUES (1, 'execute-snapshot', '{}')")
        else:
            run(*(_change(draw) for _ in range(draw.randrange(1, 4))))
    copy.take(following.all())

    assert copy.rows == rows_of(run)


def _change(draw: random.Random) -> str:
    key, other = draw.randrange(100), draw.randrange(100)
    return draw.choice(
        [
            f"INSERT IGNORE INTO t VALUES ({key}, 1)",
            f"UPDATE t SET v = v + 1 WHERE id BETWEEN {key} AND {key + 20}",
            f"DELETE FROM t WHERE id BETWEEN {key} AND {key + 5}",
            f"UPDATE IGNORE t SET id = {other} WHERE id = {key}",
            "FLUSH BINARY LOGS",
        ]
    )


@pytest.mark.parametrize(
    ("mode", "first", "second"),
    [
        ("initial", ["first", "last", "false"], ["false"]),
        ("always", ["first", "last", "false"], ["incremental", "incremental", "incremental"]),
        ("initial_only", ["first", "last"], []),
        ("no_data", ["false"], ["false"]),
        ("when_needed", ["first", "last", "false"], ["false"]),
    ],
)
def test_rows_are_told_when_the_mode_says_so(
    run: Run,
    config: MysqlCdcConfig,
    tmp_path: Path,
    mode: Any,
    first: list[str],
    second: list[str],
) -> None:
    run("CREATE TABLE blank (id INT PRIMARY KEY)", "CREATE TABLE t (id INT PRIMARY KEY)")
    run("CREATE TABLE zero (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)")
    config = msgspec.structs.replace(config, snapshot_mode=mode)
    following = Following(config, tmp_path)
    told = following.all()
    run("INSERT INTO t VALUES (3)")
    told += following.all()
    again = following.again()
    if mode != "always":
        run("INSERT INTO t VALUES (4)")

    later = again.all()

    assert marks(told) == first
    assert marks(later) == second
    done = read_progress(tmp_path)
    assert mode == "no_data" or (done is not None and done.done == done.total == 2)


def test_a_signal_has_tables_read_again_beside_their_changes(
    run: Run, config: MysqlCdcConfig, tmp_path: Path
) -> None:
    run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE bare (id INT)")
    run(f"INSERT INTO t SELECT seq, 0 FROM {numbers(10)}")
    run("CREATE TABLE s (id VARCHAR(9) PRIMARY KEY, type VARCHAR(32), data TEXT)")
    config = msgspec.structs.replace(
        config,
        snapshot_rows_per_file=3,
        snapshot_mode="no_data",
        exclude_tables=(f"{config.database}.s",),
        signal_table=f"{config.database}.s",
        mask_columns={f"{config.database}.t.id": "redact"},
    )
    following = Following(config, tmp_path)
    following.all()
    asked = json.dumps({"data-collections": [f"{config.database}.*"]})
    run(
        f"INSERT INTO s VALUES ('1', 'execute-snapshot', '{asked}')",
        "INSERT INTO s VALUES ('2', 'huh', '')",
    )

    first = following.step() or []
    run("UPDATE t SET v = 5 WHERE id BETWEEN 4 AND 6")
    second = following.step() or []
    run("INSERT INTO s VALUES ('3', 'pause-snapshot', NULL)")
    paused = following.all()
    run("ALTER TABLE t ADD COLUMN w INT", "INSERT INTO s VALUES ('4', 'resume-snapshot', NULL)")
    rest = following.all()

    assert marks(first) == ["incremental"] * 3
    assert brief(second)[0] == ("u", {"id": "**********", "v": 0}, {"id": "**********", "v": 5})
    assert marks(second) == ["false"] * 3  # all rows of the chunk are told by the log
    assert marks(paused) == ["incremental"] * 3  # the pause is behind the chunk
    assert brief(rest) == [("r", None, {"id": "**********", "v": 0, "w": None})]
