"""The change data capture sources pass the suite that every connector inherits."""

from pathlib import Path

import pytest
from tests.integration.cdc.postgres import PostgresServer

from mainstem.pipelines.connectors import postgres_cdc
from mainstem.testing.connector_suite import SourceSuite

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(240)]


class TestPostgresCdc(SourceSuite):
    connector = postgres_cdc.SOURCE
    rows = 25

    @pytest.fixture(autouse=True)
    def _database(self, server: PostgresServer, database: str) -> None:
        self.port, self.database = server.port, database
        with server.connect(database) as session:
            session.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
            session.execute("INSERT INTO t SELECT n, 'row ' || n FROM generate_series(1, 25) n")

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "database": self.database,
            "slot_name": self.database[:60],
            "password": "not-asked-for",
        }

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {**self.config(tmp_path), "database": "no_such_database"}
