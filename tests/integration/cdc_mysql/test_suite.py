"""The source of MariaDB's changes passes the suite that every connector inherits."""

from pathlib import Path

import msgspec
import pytest
from tests.integration.cdc_mysql.mariadb import MariadbServer, numbers

from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.connector.shapes import FindingSeverity
from mainstem.pipelines.connectors import mysql_cdc
from mainstem.testing.connector_suite import SourceSuite

pytestmark = [pytest.mark.needs("mariadb"), pytest.mark.timeout(240)]


class TestMysqlCdc(SourceSuite):
    connector = mysql_cdc.SOURCE
    rows = 25

    @pytest.fixture(autouse=True)
    def _database(self, server: MariadbServer, database: str) -> None:
        self.port, self.database = server.port, database
        server.run(
            "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20))",
            f"INSERT INTO t SELECT seq, concat('row ', seq) FROM {numbers(25)}",
            # Other passwords are refused: the server asks for them, unlike a trusting one.
            "CREATE OR REPLACE USER cdc@localhost IDENTIFIED BY 'not-told-to-anybody'",
            "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO cdc@localhost",
            "CREATE OR REPLACE USER cdc@'127.0.0.1' IDENTIFIED BY 'not-told-to-anybody'",
            "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO cdc@'127.0.0.1'",
            database=database,
        )

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "database": self.database,
            "user": "cdc",
            "password": "not-told-to-anybody",
        }

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {**self.config(tmp_path), "password": "nobody-has-this-one"}


def test_a_check_names_the_settings_that_are_missing(server: MariadbServer, database: str) -> None:
    config = MysqlCdcConfig(host="127.0.0.1", port=server.port, database=database)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    good = mysql_cdc.SOURCE.check(config)
    server.run("SET GLOBAL binlog_row_metadata = MINIMAL")
    try:
        bad = mysql_cdc.SOURCE.check(config)
    finally:
        server.run("SET GLOBAL binlog_row_metadata = FULL")

    deaf = mysql_cdc.SOURCE.check(msgspec.structs.replace(config, signal_table=f"{database}.s"))

    assert [each.severity for each in good] == [FindingSeverity.OK]
    assert [each.severity for each in deaf] == [FindingSeverity.ERROR, FindingSeverity.OK]
    assert any("binlog_row_metadata" in each.message for each in bad)
    unreachable = mysql_cdc.SOURCE.check(MysqlCdcConfig(host="127.0.0.1", port=1, database="d"))
    assert unreachable[0].severity is FindingSeverity.ERROR
    assert unreachable[0].retriable
