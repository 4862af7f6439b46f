"""The ``postgres`` connector: tables of PostgreSQL, in and out; ``connector`` says how."""

from mainstem.pipelines.database_tables.connector import TableSink, TableSource

SOURCE = TableSource("postgres")
SINK = TableSink("postgres")
