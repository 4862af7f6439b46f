"""The ``postgres-cdc`` source: the rows of PostgreSQL tables, then every change of them.

Reads the server's write-ahead log through a replication slot (``pgoutput``); needs
``wal_level = logical`` and a role with REPLICATION. Its guarantees are described in
``docs/guides/cdc.md``.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
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

VERSION_MIN = 140_000  # pgoutput has logical messages since version 14
# Cloud providers grant the right through their own roles.
_MAY_REPLICATE: Final = """
SELECT bool_or(rolreplication OR rolsuper OR (rolname IN
    ('rds_replication', 'rds_superuser', 'cloudsqlsuperuser', 'azure_pg_admin')))
FROM pg_roles WHERE pg_has_role(current_user, oid, 'member')
    AND (rolname = current_user OR rolname IN
    ('rds_replication', 'rds_superuser', 'cloudsqlsuperuser', 'azure_pg_admin'))
"""

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mainstem.pipelines.cdc.postgres.server import PostgresCdcServer, PublishedTable


class PostgresCdcSource:
    """Captures a PostgreSQL database."""

    def spec(self) -> Spec:
        """The metadata of this source."""
        return Spec(
            name="postgres-cdc",
            kind="source",
            title="PostgreSQL change data capture",
            category=Category.CDC,
            config=PostgresCdcConfig,
            extra="postgres",
            modules=("psycopg",),
            notes="Transactions are never split: a large one makes a large batch.",
        )

    def check(self, config: PostgresCdcConfig) -> list[Finding]:
        """Whether the server answers, has logical decoding, and grants access."""
        if problems := setting_problems(config):
            return problems
        from mainstem.pipelines.cdc.postgres.server import PostgresCdcServer

        return checked(
            lambda: PostgresCdcServer(config), lambda server: _server_findings(server, config)
        )

    def discover(self, config: PostgresCdcConfig) -> list[Discovered]:
        """Every table of the database that could be captured."""
        from mainstem.pipelines.cdc.postgres.server import PostgresCdcServer

        everything = msgspec.structs.replace(config, tables=("*",), exclude_tables=())
        server = PostgresCdcServer(everything)
        try:
            return [_discovered(each) for each in server.tables()]
        finally:
            server.close()

    def read(
        self, spark: "SparkSession", config: PostgresCdcConfig, context: ConnectorContext
    ) -> "DataFrame":
        """Events as JSON, each with its table's topic.

        Raises:
            MainstemError: the slot that this pipeline reads is lost.
        """
        from mainstem.pipelines.cdc.postgres.reader import PostgresCdcDataSource
        from mainstem.pipelines.cdc.reader import load_changes

        self.spec().require()
        if context.streaming and not context.rehearsal:
            _refuse_lost_slot(config, context)
        return load_changes(spark, PostgresCdcDataSource, config, context)


def _server_findings(server: "PostgresCdcServer", config: PostgresCdcConfig) -> list[Finding]:
    from mainstem.pipelines.cdc.postgres.change_stream import chosen_tables
    from mainstem.pipelines.cdc.postgres.slot import lost_slot

    found: list[Finding] = []
    [(level,)] = server.ask("SELECT current_setting('wal_level')")
    if level != "logical":
        found.append(
            failed(f"wal_level is {level}", "set wal_level = logical and restart the server")
        )
    [(number,)] = server.ask("SELECT current_setting('server_version_num')::int")
    if number < VERSION_MIN:
        found.append(
            failed(f"the server is PostgreSQL {number // 10_000}", "use PostgreSQL 14 or newer")
        )
    [(may,)] = server.ask(_MAY_REPLICATE)
    if not may:
        found.append(
            failed(
                f"{config.user} has no REPLICATION right", f"ALTER ROLE {config.user} REPLICATION"
            )
        )
    tables = chosen_tables(server, config)
    slot = server.slot()
    if slot is not None and slot.is_lost and config.snapshot_mode != "when_needed":
        lost = lost_slot(config, slot)
        found.append(failed(f"{lost.cause} [{lost.subject}]", lost.remedy))
    if slot is not None and slot.kept_bytes > config.wal_warning_bytes:
        found.append(
            warned(
                f"the server retains {slot.kept_bytes >> 20} MiB of WAL for {config.slot_name}",
                "run the pipeline, or drop the slot if it is no longer needed",
            )
        )
    found += [
        warned(
            f"{each.shape.full_name} has no primary key and no unique index without nulls:"
            " its records have no keys",
            "set key_columns, and ALTER TABLE ... REPLICA IDENTITY FULL to allow its updates",
        )
        for each in tables
        if not each.shape.key and not each.shape.unique and each.identity == "d"
    ]
    return [*found, passed(f"{len(tables)} tables of {config.database} can be captured")]


def _discovered(table: "PublishedTable") -> Discovered:
    shape = table.shape
    return Discovered(
        name=shape.full_name,
        columns=tuple(
            Column(each.name, each.type.name, nullable=each.name not in shape.key)
            for each in shape.columns
        ),
        key=shape.key,
        rows_estimate=table.rows_estimate,
        config={"tables": [shape.full_name]},
    )


def _refuse_lost_slot(config: PostgresCdcConfig, context: ConnectorContext) -> None:
    """Raise if the slot that this pipeline created is lost; a retry would not help."""
    from mainstem.pipelines.cdc.postgres.server import PostgresCdcServer
    from mainstem.pipelines.cdc.postgres.slot import lost_slot
    from mainstem.pipelines.cdc.postgres.snapshot import load_state

    begun = load_state(context.state_dir)
    is_needed = config.snapshot_mode not in {"when_needed", "initial_only"}
    if begun is None or not is_needed or (begun.shown_until == 0 and not begun.is_complete):
        return
    server = PostgresCdcServer(config)
    try:
        slot = server.slot()
    finally:
        server.close()
    if slot is None or slot.is_lost:
        raise lost_slot(config, slot)


SOURCE = PostgresCdcSource()
