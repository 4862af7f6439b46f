"""The ``mysql`` connector: tables of MySQL and MariaDB, in and out; ``_tables`` says how."""

from mainstem.pipelines.connectors._tables import TableSink, TableSource

SOURCE = TableSource("mysql")
SINK = TableSink("mysql")
