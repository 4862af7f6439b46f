"""The ``mysql`` connector: tables of MySQL and MariaDB, as source and sink."""

from mainstem.pipelines.database_tables.connector import TableSink, TableSource

SOURCE = TableSource("mysql")
SINK = TableSink("mysql")
