"""MariaDB's changes in Avro are what they are in JSON, read with nothing but the topics."""

from pathlib import Path
from typing import Any

import pytest
from tests.integration.cdc.avro_reading import AvroReading, compared
from tests.integration.cdc.follow import Following
from tests.integration.cdc_mysql.mariadb import MariadbServer
from tests.integration.debezium.mariadb_workload import AFTER, BEFORE

from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig

pytestmark = [pytest.mark.needs("mariadb"), pytest.mark.timeout(180)]

MODES: tuple[dict[str, Any], ...] = (
    {"decimal_mode": "precise", "transaction_metadata": True, "schema_changes_topic": "ddl"},
    {"decimal_mode": "double", "binary_mode": "hex", "time_mode": "connect"},
    {"time_mode": "isostring", "mask_columns": {"*.note": "redact"}},
)


def test_avro_tells_what_json_tells(server: MariadbServer, database: str, tmp_path: Path) -> None:
    server.run(*BEFORE, database=database)
    pairs = []
    for number, mode in enumerate(MODES):
        for form in ("json", "avro"):
            folder = tmp_path / f"{form}_{number}"
            folder.mkdir()
            config = MysqlCdcConfig(
                host="127.0.0.1", port=server.port, database=database, format=form, **mode
            )
            pairs.append(Following(config, folder))
    rows = [each.all() for each in pairs]
    server.run(*AFTER, database=database)
    rows = [told + each.all() for told, each in zip(rows, pairs, strict=True)]
    for plain, avro in zip(rows[::2], rows[1::2], strict=True):
        reading = AvroReading(f"cdc.{database}.schemas")
        assert compared(reading.events(avro), plain, config.placeholder) > 80
        assert len(reading.schemas) > 15
