"""The ``postgres`` connector: tables of PostgreSQL, as source and sink."""

from mainstem.pipelines.database_tables.connector import TableSink, TableSource

SOURCE = TableSource("postgres")
SINK = TableSink("postgres")
