"""Tables that are read again while their changes stream on, because a signal asked for it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.cdc.follow import Following, brief, event

from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(180)]

Run = Callable[..., list[tuple[Any, ...]]]
TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text)"
SIGNAL_TABLE = "CREATE TABLE signals (id text PRIMARY KEY, type text, data text)"
AGAIN = """INSERT INTO signals VALUES
    ('1', 'execute-snapshot', '{"data-collections": ["public.t", "public.bare"]}')"""


def test_a_signal_reads_a_table_again_while_its_changes_stream_on(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, SIGNAL_TABLE, "CREATE TABLE bare (n int)")
    run("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 40) n")
    config = msgspec.structs.replace(
        config,
        tables=("public.t", "public.bare"),
        signal_table="public.signals",
        snapshot_mode="no_data",
        snapshot_rows_per_file=10,
    )
    following = Following(config, tmp_path)
    assert following.all() == []
    run("INSERT INTO t VALUES (50, 'new')", AGAIN)
    told = following.step() or []
    assert [row[0] for row in brief(told)] == ["c"]
    kept = {key for (key,) in run("SELECT id FROM t")}
    for key in (5, 15, 25, 35):  # each time before a chunk, once with a crash on top
        run(f"UPDATE t SET name = 'new' WHERE id IN ({key}, {key + 1}, 2)")
        run(f"DELETE FROM t WHERE id = {key + 2}", f"INSERT INTO t VALUES ({key + 100}, 'new')")
        if key == 25:  # a chunk that Spark was never told of
            following.follower.next(following.position, None)
            following = following.again()
        batch = following.step() or []
        assert following.read(*following.batches[-1]) == batch
        told += batch
    told += following.all()
    marks = {event(each)["source"]["snapshot"] for each in told if each["value"] is not None}
    assert marks == {"false", "incremental"}
    table = {key: "old" for key in kept if key <= 40}
    read: list[int] = []
    places: dict[int, list[int]] = {}
    for each in told:
        key = json.loads(each["key"])["id"]
        if each["value"] is None:
            assert key not in table
            continue
        decoded = event(each)
        places.setdefault(key, []).append(decoded["source"]["lsn"])
        if decoded["op"] == "d":
            del table[key]
            continue
        if decoded["op"] == "r":
            read.append(key)
        table[key] = decoded["after"]["name"]
    assert table == dict(run("SELECT id, name FROM t"))
    assert all(each == sorted(each) for each in places.values()), "no key goes back in time"
    assert len(read) == len(set(read))
    assert len(read) > 25


def test_signals_by_message_pause_resume_and_stop_a_snapshot(
    config: PostgresCdcConfig, run: Run, tmp_path: Path
) -> None:
    run(TABLE, "INSERT INTO t SELECT n, 'x' FROM generate_series(1, 30) n")
    config = msgspec.structs.replace(
        config, snapshot_mode="no_data", snapshot_rows_per_file=10, messages=False
    )
    following = Following(config, tmp_path)
    following.all()

    def say(kind: str, **more: Any) -> None:
        content = json.dumps({"id": kind, "type": kind, **more})
        run(f"SELECT pg_logical_emit_message(true, 'mainstem.signal', '{content}')")

    def rows() -> int:
        return len([row for row in brief(following.step() or []) if row[0] == "r"])

    say("execute-snapshot", data={"data-collections": ["public.*"]})
    say("no such command")
    assert rows() == 0
    say("pause-snapshot")
    assert rows() == 10  # the signal is in the log that this batch tells
    assert following.all() == []
    say("resume-snapshot")
    assert rows() == 0
    assert rows() == 10
    say("stop-snapshot")
    assert rows() == 10
    assert following.all() == []
