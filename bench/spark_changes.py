"""A PostgreSQL server with one table, and how fast a side tells its rows and then their changes.

The rows are there before a side comes, and so are the changes: what is measured is how fast a side
can go, not how fast the server is written to. Changes come in transactions of a hundred rows.
"""

import uuid
from typing import Self

from bench.figures import Figure, Figures
from bench.spark_sides import SparkSide
from tests.integration.cdc.postgres import PostgresServer

PER_TRANSACTION = 100
TABLE = """CREATE TABLE orders (
    id bigint PRIMARY KEY, customer text NOT NULL, status varchar(16), amount numeric(12, 2),
    quantity int, paid boolean, created timestamp, note text)"""
ROWS = """INSERT INTO orders SELECT g, 'customer-' || (g %% 1000),
    (ARRAY['new', 'paid', 'sent', 'done'])[1 + g %% 4], (g %% 100000) / 100.0, g %% 10, g %% 2 = 0,
    timestamp '2026-01-01' + g * interval '1 second', repeat('n', (g %% 40)::int)
    FROM generate_series(1, %s) g"""
CHANGE = "UPDATE orders SET status = 'changed', quantity = quantity + 1 WHERE id > %s AND id <= %s"


class Tables:
    """A context manager."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._server = PostgresServer()

    def __enter__(self) -> Self:
        self._server.__enter__()
        with self._server.connect() as session:
            session.execute(TABLE)
            session.execute(ROWS, (self._rows,))
            session.execute("VACUUM ANALYZE orders")
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.__exit__(*problem)

    def followed(self, side: SparkSide, changes: int) -> Figures:
        """A slot of the side's own: first the rows, then what was changed meanwhile."""
        slot = f"bench_{uuid.uuid4().hex[:8]}"
        rows = side.cost(self._rows, "follow", self._server.port, slot, self._rows)
        self._change(changes)
        told = side.cost(changes, "follow", self._server.port, slot, changes)
        with self._server.connect() as session:
            session.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
            session.execute("VACUUM orders")
        return {"spark_snapshot": _by_wall(rows), "spark_changes": _by_wall(told)}

    def _change(self, count: int) -> None:
        with self._server.connect() as session:
            for start in range(0, count, PER_TRANSACTION):
                session.execute(CHANGE, (start, start + PER_TRANSACTION))


def _by_wall(figure: Figure) -> Figure:
    return Figure(figure.beside["rate"], {"per_core": figure.value})
