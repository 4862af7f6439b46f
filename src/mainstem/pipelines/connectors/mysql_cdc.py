"""The ``mysql-cdc`` source: the rows of MySQL or MariaDB tables, then every change of them.

Reads the server's binary log; needs ``binlog_format = ROW``, ``binlog_row_metadata = FULL`` and a
user with replication rights. Its guarantees are described in ``docs/guides/cdc.md``.
"""

from typing import TYPE_CHECKING

from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig
from mainstem.pipelines.cdc.setting_checks import checked, setting_problems
from mainstem.pipelines.connector.shapes import (
    Column,
    ConnectorContext,
    Discovered,
    Finding,
    failed,
    passed,
    warned,
)
from mainstem.pipelines.connector.spec import Category, Spec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer

_NEEDED = {"binlog_format": "ROW", "binlog_row_metadata": "FULL"}
_FORBIDDEN = {
    "log_bin_compress": "ON",
    "binlog_transaction_compression": "ON",
    "binlog_row_value_options": "PARTIAL_JSON",
}


class MysqlCdcSource:
    """Captures a MySQL or MariaDB server."""

    def spec(self) -> Spec:
        """The metadata of this source."""
        return Spec(
            name="mysql-cdc",
            kind="source",
            title="MySQL and MariaDB change data capture",
            category=Category.CDC,
            config=MysqlCdcConfig,
            extra="mysql",
            modules=("pymysql",),
            notes="Tested with MariaDB, manually with MySQL 9.7. Transactions are never split.",
        )

    def check(self, config: MysqlCdcConfig) -> list[Finding]:
        """Whether the server answers, logs rows with column names, and grants access."""
        if problems := setting_problems(config):
            return problems
        if missing := self.spec().missing:
            return [failed(f"needs {', '.join(missing)}", "pip install 'mainstem[mysql]'")]
        from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer

        return checked(
            lambda: MysqlCdcServer(config), lambda server: _server_findings(server, config)
        )

    def discover(self, config: MysqlCdcConfig) -> list[Discovered]:
        """Every table of the server that could be captured."""
        from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer

        server = MysqlCdcServer(config)
        try:
            return [
                Discovered(
                    name=shape.full_name,
                    columns=tuple(
                        Column(name, of.word, nullable=name not in shape.key)
                        for name, of in shape.columns
                    ),
                    key=shape.key,
                    rows_estimate=server.rows_estimate(shape),
                    config={"tables": [shape.full_name]},
                )
                for shape in server.tables(("*",))
            ]
        finally:
            server.close()

    def read(
        self, spark: "SparkSession", config: MysqlCdcConfig, context: ConnectorContext
    ) -> "DataFrame":
        """Events as JSON, each with its table's topic.

        Raises:
            MainstemError: the binary log does not reach back to where this pipeline stopped.
        """
        self.spec().require()
        from mainstem.pipelines.cdc.mysql.reader import MysqlCdcDataSource
        from mainstem.pipelines.cdc.reader import load_changes

        if context.streaming:
            _refuse_lost_log(config, context)
        return load_changes(spark, MysqlCdcDataSource, config, context)


def _server_findings(server: "MysqlCdcServer", config: MysqlCdcConfig) -> list[Finding]:
    server.end_of_log()
    found = [
        failed(f"{name} is {server.setting(name) or 'not set'}", f"set {name} = {wanted}")
        for name, wanted in _NEEDED.items()
        if server.setting(name).upper() != wanted
    ]
    found += [
        failed(f"{name} is {value}", f"set {name} to its default")
        for name, value in _FORBIDDEN.items()
        if server.setting(name).upper() == value
    ]
    if server.setting("binlog_row_image").upper() != "FULL":
        found.append(
            warned(
                "the binary log has incomplete rows: old rows have placeholders",
                "set binlog_row_image = FULL",
            )
        )
    tables = server.tables(config.chosen, config.exclude_tables)
    if not tables:
        found.append(failed("no table is selected", "see tables and exclude_tables"))
    if config.signal_table and not server.tables((config.signal_table,)):
        found.append(
            failed(f"{config.signal_table} does not exist", "create it with id, type and data")
        )
    found += [
        warned(f"{each.full_name} has no primary key: its records have no keys", "set key_columns")
        for each in tables
        if not each.key and not each.unique
    ]
    return [*found, passed(f"{len(tables)} tables of {config.database} can be captured")]


def _refuse_lost_log(config: MysqlCdcConfig, context: ConnectorContext) -> None:
    """Raise if the log that this pipeline needs was purged; a retry would not help."""
    from mainstem.pipelines.cdc.mysql.binlog_stream import locate
    from mainstem.pipelines.cdc.mysql.change_stream import load_reached
    from mainstem.pipelines.cdc.mysql.server import MysqlCdcServer

    reached = load_reached(context.state_dir)
    if reached is None or config.snapshot_mode in {"initial_only", "when_needed"}:
        return
    server = MysqlCdcServer(config)
    try:
        locate(server, reached)
    finally:
        server.close()


SOURCE = MysqlCdcSource()
