"""PostgreSQL's changes in Avro are what they are in JSON, read with nothing but the topics."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.cdc.avro_reading import AvroReading, compared
from tests.integration.cdc.follow import Following
from tests.integration.cdc.postgres import PostgresServer
from tests.integration.debezium.postgres_workload import AFTER, BEFORE

from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(180)]


MODES: tuple[dict[str, Any], ...] = (
    {"decimal_mode": "precise", "transaction_metadata": True},
    {"decimal_mode": "double", "binary_mode": "hex", "time_mode": "connect"},
    {"time_mode": "isostring", "interval_mode": "string", "mask_columns": {"*.note": "hash"}},
)


def test_avro_tells_what_json_tells(
    server: PostgresServer, config: PostgresCdcConfig, tmp_path: Path
) -> None:
    with server.connect(config.database) as session:
        for statement in BEFORE:
            session.execute(statement.encode())
    pairs = []
    for number, mode in enumerate(MODES):
        for form in ("json", "avro"):
            given = {**mode, "format": form, "slot_name": f"{form}_{number}"}
            (tmp_path / given["slot_name"]).mkdir()
            told = msgspec.structs.replace(config, **given)
            pairs.append(Following(told, tmp_path / given["slot_name"]))
    rows = [each.all() for each in pairs]
    with server.connect(config.database) as session:
        for statement in AFTER:
            session.execute(statement.encode())
    rows = [told + each.all() for told, each in zip(rows, pairs, strict=True)]
    for plain, avro in zip(rows[::2], rows[1::2], strict=True):
        reading = AvroReading(f"cdc.{config.database}.schemas")
        assert compared(reading.events(avro), plain, config.placeholder) > 90
        assert len(reading.schemas) > 20


def test_a_repeated_batch_tells_its_schemas_again_and_is_the_same(
    server: PostgresServer, config: PostgresCdcConfig, tmp_path: Path
) -> None:
    with server.connect(config.database) as session:
        session.execute("CREATE TABLE t (id int PRIMARY KEY, amount numeric(8,2))")
        session.execute("INSERT INTO t VALUES (1, 1.5)")
        following = Following(
            msgspec.structs.replace(config, format="avro", decimal_mode="precise"), tmp_path
        )
        first = following.step()
        assert first is not None
        assert following.read(*following.batches[0]) == first
        session.execute("ALTER TABLE t ALTER amount TYPE numeric(8,3)")
        session.execute("INSERT INTO t VALUES (2, 2.125)")
        second = following.all()

    reading = AvroReading(f"cdc.{config.database}.schemas")
    told = reading.events(first + second)
    amounts = [each["value"]["after"]["amount"] for each in told]
    assert [str(each) for each in amounts] == ["1.50", "2.125"]
    assert len(reading.schemas) == 3  # one key, and an event for each scale
