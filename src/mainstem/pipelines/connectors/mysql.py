"""The ``mysql`` connector: tables of MySQL and MariaDB, in and out; ``connector`` says how."""

from mainstem.pipelines.database_tables.connector import TableSink, TableSource

SOURCE = TableSource("mysql")
SINK = TableSink("mysql")
