"""The ``postgres`` connector: tables of PostgreSQL, in and out; ``_tables`` says how."""

from mainstem.pipelines.connectors._tables import TableSink, TableSource

SOURCE = TableSource("postgres")
SINK = TableSink("postgres")
