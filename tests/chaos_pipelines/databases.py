"""Two databases under write load, and what a reader of their topics must find.

PostgreSQL and MariaDB hold the same table and get the same kinds of changes. The topic is right
when no event is told twice, each key's events stand in the order of the log, each step is possible
after the one before, and the table that results is the table in the database.
"""

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import psycopg
import pymysql
from tests.integration.cdc.postgres import PostgresServer
from tests.integration.cdc_mysql.mariadb import MariadbServer

from mainstem.client.values import ConsumerRecord

ROWS_BEFORE = 3_000
KEYS = 4_000
PAUSE_S = 0.05
RECONNECT_S = 0.2
LAST_ID = 0
DATABASE = "shop"
Row = tuple[Any, ...]


class Followed(Protocol):
    """A database whose table ``orders`` is followed."""

    name: str
    connector: str

    def prepare(self) -> None:
        """Make the table, with rows."""

    def connect(self) -> Any:
        """A session; its cursors run statements, each its own transaction unless it begins one."""

    def config(self) -> dict[str, object]:
        """Settings of the connector."""

    def place(self, event: dict[str, Any]) -> tuple[Any, ...]:
        """Where in the log an event stands, as it says itself; grows."""

    upsert: str
    move: str


class Postgres:
    """PostgreSQL, which may be restarted under load."""

    name = "postgres"
    connector = "postgres-cdc"
    upsert = (
        "INSERT INTO orders (id, customer, amount) VALUES (%s, %s, %s)"
        " ON CONFLICT (id) DO UPDATE SET amount = orders.amount + 1"
    )
    move = (
        "UPDATE orders SET id = %s WHERE id = %s"
        " AND NOT EXISTS (SELECT 1 FROM orders AS other WHERE other.id = orders.id + 4000)"
    )

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    def prepare(self) -> None:
        with self.server.connect() as session:
            session.execute(f"CREATE DATABASE {DATABASE}".encode())
        with self.server.connect(DATABASE) as session:
            session.execute("CREATE TABLE orders (id int PRIMARY KEY, customer text, amount int)")
            session.execute(
                "INSERT INTO orders SELECT n, 'customer ' || n, n FROM generate_series(1, %s) n",
                (ROWS_BEFORE,),
            )

    def connect(self) -> Any:
        return self.server.connect(DATABASE)

    def config(self) -> dict[str, object]:
        return _config(self.server.port)

    def place(self, event: dict[str, Any]) -> tuple[Any, ...]:
        source = event["source"]
        return int(json.loads(source["sequence"])[0] or 0), source["lsn"]


class MariaDb:
    """MariaDB, whose log goes from file to file."""

    name = "mariadb"
    connector = "mysql-cdc"
    upsert = (
        "INSERT INTO orders (id, customer, amount) VALUES (%s, %s, %s)"
        " ON DUPLICATE KEY UPDATE amount = amount + 1"
    )
    move = "UPDATE IGNORE orders SET id = %s WHERE id = %s"

    def __init__(self, server: MariadbServer) -> None:
        self.server = server

    def prepare(self) -> None:
        self.server.run(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        self.server.run(
            "CREATE TABLE orders (id INT PRIMARY KEY, customer VARCHAR(40), amount INT)",
            "INSERT INTO orders SELECT seq, concat('customer ', seq), seq"
            f" FROM seq_1_to_{ROWS_BEFORE}",
            database=DATABASE,
        )

    def connect(self) -> Any:
        return self.server.connect(DATABASE)

    def config(self) -> dict[str, object]:
        return _config(self.server.port)

    def place(self, event: dict[str, Any]) -> tuple[Any, ...]:
        source = event["source"]
        return source["file"], source["pos"], source["row"]


def _config(port: int) -> dict[str, object]:
    """Small files, so that a snapshot takes a while and can be killed in its middle."""
    return {
        "host": "127.0.0.1",
        "port": port,
        "database": DATABASE,
        "snapshot_rows_per_file": 500,
    }


class Load(threading.Thread):
    """Inserts, updates, deletes and moves rows, some in vain, until it is told to stop."""

    def __init__(self, database: Followed, draw: random.Random) -> None:
        super().__init__()
        self._database = database
        self._draw = draw
        self._ending = threading.Event()
        self.transactions = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ending.is_set():
                try:
                    with self._database.connect() as session, session.cursor() as cursor:
                        self._work(cursor)
                except (psycopg.OperationalError, pymysql.err.OperationalError):
                    time.sleep(RECONNECT_S)  # it is being restarted
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def _work(self, cursor: Any) -> None:
        while not self._ending.is_set():
            cursor.execute("BEGIN")
            for _ in range(self._draw.randrange(1, 8)):
                self._change(cursor)
            if self._draw.random() < 0.1:
                cursor.execute("ROLLBACK")
            else:
                cursor.execute("COMMIT")
                self.transactions += 1
            if isinstance(self._database, MariaDb) and self._draw.random() < 0.02:
                cursor.execute("FLUSH BINARY LOGS")
            time.sleep(PAUSE_S)

    def _change(self, cursor: Any) -> None:
        key = self._draw.randrange(1, KEYS)
        what = self._draw.random()
        if what < 0.4:
            cursor.execute(self._database.upsert, (key, f"customer {key}", key))
        elif what < 0.7:
            cursor.execute("UPDATE orders SET amount = amount * 2 %% 1009 WHERE id = %s", (key,))
        elif what < 0.9:
            cursor.execute("DELETE FROM orders WHERE id = %s", (key,))
        else:
            cursor.execute(self._database.move, (key + KEYS, key))

    def stop(self) -> None:
        """End, and leave a last row behind."""
        self._ending.set()
        self.join(30)
        if self.error is not None:
            raise self.error
        with self._database.connect() as session, session.cursor() as cursor:
            cursor.execute(self._database.upsert, (LAST_ID, "the last", 0))


def anomalies_of(database: Followed, told: Sequence[ConsumerRecord]) -> list[str]:
    """What is wrong with a topic; nothing, if all is well."""
    found = _doubled_or_disordered(told, database.place)
    table: dict[int, Row] = {}
    for record in told:
        found += _step(table, record)
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("SELECT id, customer, amount FROM orders")
        real = {row[0]: tuple(row) for row in cursor.fetchall()}
    wrong = [key for key in real.keys() | table.keys() if real.get(key) != table.get(key)]
    if wrong:
        found.append(f"{len(wrong)} rows differ from the database, such as {sorted(wrong)[:5]}")
    return [f"{database.name}: {each}" for each in found[:20]]


def _doubled_or_disordered(
    told: Sequence[ConsumerRecord], place_of: Callable[[dict[str, Any]], tuple[Any, ...]]
) -> list[str]:
    places: defaultdict[bytes, list[tuple[Any, ...]]] = defaultdict(list)
    seen: Counter[tuple[Any, ...]] = Counter()
    rows: Counter[bytes] = Counter()
    for record in told:
        if record.value is None:
            continue
        event = json.loads(record.value)
        key, place = record.key or b"", place_of(event)
        places[key].append(place)
        seen[key, place, event["op"]] += 1
        rows[key] += event["op"] == "r"
    found = [f"told {count} times: {what}" for what, count in seen.items() if count > 1]
    found += [f"out of order: {key!r}" for key, each in places.items() if each != sorted(each)]
    return found + [f"twice in the snapshot: {key!r}" for key, count in rows.items() if count > 1]


def _step(table: dict[int, Row], record: ConsumerRecord) -> list[str]:
    """Follow one event; impossible ones are told."""
    key = json.loads(record.key or b"")["id"]
    if record.value is None:
        return [f"a tombstone of a row that is there: {key}"] if key in table else []
    event = json.loads(record.value)
    if event["op"] == "d":
        return [] if table.pop(key, None) is not None else [f"a row went that never came: {key}"]
    is_possible = (key in table) == (event["op"] == "u")
    after = event["after"]
    table[key] = (after["id"], after["customer"], after["amount"])
    return [] if is_possible else [f"impossible: {event['op']} of {key}"]
