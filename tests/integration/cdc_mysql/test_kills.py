"""MariaDB to topics under write load while everything but the databases is killed, at random.

The table that a reader of the topic builds equals the table in the database, no event is told
twice, and each key's events are in the order of the log. ``MAINSTEM_KILLS=20`` kills more often.
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cdc_mysql.mariadb import MariadbServer
from tests.integration.pipelines.stage import records

from mainstem.client.values import ConsumerRecord
from mainstem.testing.local_node import LocalNode

KILLS = int(os.environ.get("MAINSTEM_KILLS", "3"))
pytestmark = [
    pytest.mark.needs("mariadb"),
    pytest.mark.slow,
    pytest.mark.timeout(600 + 120 * KILLS),
]

ROWS_BEFORE = 3_000
PATIENCE_S = 200.0
RUN = "from mainstem.cli.main import main; import sys; main(['pipeline', 'run', *sys.argv[1:]])"


class Load(threading.Thread):
    """Inserts, updates, deletes and moves rows until it is told to stop."""

    def __init__(self, server: MariadbServer, database: str) -> None:
        super().__init__()
        self._server = server
        self._database = database
        self._ending = threading.Event()
        self.transactions = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        draw = random.Random(4)
        session = self._server.connect(self._database)
        try:
            with session.cursor() as cursor:
                while not self._ending.is_set():
                    cursor.execute("BEGIN")
                    for _ in range(draw.randrange(1, 8)):
                        self._change(cursor, draw)
                    if draw.random() < 0.1:
                        cursor.execute("ROLLBACK")
                    else:
                        cursor.execute("COMMIT")
                        self.transactions += 1
                    if draw.random() < 0.01:
                        cursor.execute("FLUSH BINARY LOGS")
                    time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001
            self.error = error
        finally:
            session.close()

    @staticmethod
    def _change(cursor: Any, draw: random.Random) -> None:
        key = draw.randrange(1, 4_000)
        what = draw.random()
        if what < 0.4:
            cursor.execute(
                "INSERT INTO orders (id, customer, amount) VALUES (%s, %s, %s)"
                " ON DUPLICATE KEY UPDATE amount = amount + 1",
                (key, f"customer {key}", key),
            )
        elif what < 0.7:
            cursor.execute("UPDATE orders SET amount = amount * 2 %% 1009 WHERE id = %s", (key,))
        elif what < 0.9:
            cursor.execute("DELETE FROM orders WHERE id = %s", (key,))
        else:
            cursor.execute("UPDATE IGNORE orders SET id = %s WHERE id = %s", (key + 4_000, key))

    def stop(self) -> None:
        self._ending.set()
        self.join(30)
        if self.error is not None:
            raise self.error


class Connect:
    """``mainstem-connect run`` in a process group of its own."""

    def __init__(self, file: Path, log: Path) -> None:
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill9(self) -> None:
        """The whole group: Python, Java, the Python workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            if self.process.poll() is None:
                self.kill9()


def offsets_logged(state: Path) -> int:
    """How many batches Spark has planned, over all lives."""
    folder = state / "sources" / "db" / "checkpoint" / "offsets"
    names = [path.name for path in folder.glob("*")] if folder.exists() else []
    return max((int(name) + 1 for name in names if name.isdigit()), default=0)


def test_the_topic_holds_every_change_once_however_often_everything_is_killed(
    server: MariadbServer, database: str, shared_node: LocalNode, tmp_path: Path
) -> None:
    server.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(40), amount INT)",
        f"INSERT INTO orders SELECT seq, concat('customer ', seq), seq FROM seq_1_to_{ROWS_BEFORE}",
        database=database,
    )
    topic = "kills.mariadb.orders"
    state = tmp_path / "state"
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sources:
  db:
    connector: mysql-cdc
    topic: kills.mariadb.other
    topic_config: {{partitions: 2}}
    tables: [{{table: orders, topic: {topic}}}]
    rate_limit: {{events_per_second: 4000}}
    config:
      host: 127.0.0.1
      port: {server.port}
      database: {database}
      snapshot_rows_per_file: 500
settings:
  state_dir: {state}
  trigger_interval_ms: 200
  health: {{enabled: false}}
  spark: {{master: "local[2]", driver_memory: 512m}}
"""
    )
    log = tmp_path / "connect.log"
    draw = random.Random(7)
    load = Load(server, database)
    load.start()
    try:
        for _ in range(KILLS):
            _live_a_little(Connect(file, log), state, log, draw)
    finally:
        load.stop()
    assert load.transactions > 50
    server.run("INSERT INTO orders VALUES (0, 'the last', 0)", database=database)
    _finish(Connect(file, log), shared_node, topic, log)

    told = records(shared_node.kafka, topic)
    expected = {
        row[0]: {"id": row[0], "customer": row[1], "amount": row[2]}
        for row in server.run("SELECT id, customer, amount FROM orders", database=database)
    }
    _each_told_once_and_in_order(told)
    assert rebuilt(told) == expected


def _live_a_little(connect: Connect, state: Path, log: Path, draw: random.Random) -> None:
    """Let it plan some more batches, then kill it at any moment."""
    deadline = time.monotonic() + PATIENCE_S
    goal = offsets_logged(state) + draw.randrange(1, 6)
    try:
        while offsets_logged(state) < goal:
            assert connect.process.poll() is None, log.read_text()[-3_000:]
            assert time.monotonic() < deadline, log.read_text()[-3_000:]
            time.sleep(0.01)
        time.sleep(draw.random() * 0.4)
    finally:
        connect.kill9()


def _finish(connect: Connect, node: LocalNode, topic: str, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not any(record.key == b'{"id":0}' for record in records(node.kafka, topic)):
            assert connect.process.poll() is None, log.read_text()[-3_000:]
            assert time.monotonic() < deadline, log.read_text()[-3_000:]
            time.sleep(1)
    finally:
        status = connect.stop()
    assert status == 0, log.read_text()[-3_000:]


def _each_told_once_and_in_order(told: list[ConsumerRecord]) -> None:
    places: defaultdict[bytes, list[tuple[str, int, int]]] = defaultdict(list)
    seen: Counter[tuple[bytes, str, int, int, str]] = Counter()
    for record in told:
        if record.value is None:
            continue
        event = json.loads(record.value)
        key, source = record.key or b"", event["source"]
        place = (source["file"], source["pos"], source["row"])
        places[key].append(place)
        seen[key, *place, event["op"]] += 1
    doubled = {what: count for what, count in seen.items() if count > 1}
    assert not doubled
    assert all(each == sorted(each) for each in places.values())
    snapshot = [key for key, *_, op in seen if op == "r"]
    assert len(snapshot) == len(set(snapshot))
    assert len({file for file, *_ in (place for each in places.values() for place in each)}) > 1


def rebuilt(told: list[ConsumerRecord]) -> dict[int, dict[str, Any]]:
    """The table that a reader who follows the events ends up with; impossible steps are told."""
    table: dict[int, dict[str, Any]] = {}
    for record in told:
        key = json.loads(record.key or b"")["id"]
        if record.value is None:
            assert key not in table, "a tombstone of a row that is there"
            continue
        event = json.loads(record.value)
        if event["op"] == "d":
            assert key in table, "a row went that never came"
            del table[key]
            continue
        assert (key in table) == (event["op"] == "u"), (event["op"], key)
        table[key] = event["after"]
    return table
