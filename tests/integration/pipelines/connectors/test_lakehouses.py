"""Delta and Iceberg tables: the suite, kills around the commit, other writers, schemas."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from mainstem.model.errors import InvalidRequest
from mainstem.pipelines.connector.batches import BatchIdentity
from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.pipelines.connectors import delta, iceberg
from mainstem.testing.connector_suite import SinkSuite

pytestmark = pytest.mark.timeout(240)


def delta_config(tmp_path: Path, **given: Any) -> dict[str, Any]:
    return {"path": str(tmp_path / "table"), **given}


def iceberg_config(tmp_path: Path, **given: Any) -> dict[str, Any]:
    (tmp_path / "warehouse").mkdir(exist_ok=True)
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    return {"table": "shop.orders", "catalog": catalog, **given}


def delta_values(tmp_path: Path, column: str = "value") -> list[Any]:
    table = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    found: list[Any] = table[column].to_pylist()
    return found


def iceberg_values(tmp_path: Path, column: str = "value") -> list[Any]:
    catalog = load_catalog("default", **iceberg_config(tmp_path)["catalog"])
    table = catalog.load_table("shop.orders").scan().to_arrow()
    found: list[Any] = table[column].to_pylist()
    return found


class TestDelta(SinkSuite):
    connector = delta.SINK

    def config(self, tmp_path: Path) -> dict[str, object]:
        return delta_config(tmp_path)

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return delta_config(tmp_path, schema="no such type")

    def written(self, tmp_path: Path) -> list[bytes]:
        return delta_values(tmp_path)


class TestIceberg(SinkSuite):
    connector = iceberg.SINK

    def config(self, tmp_path: Path) -> dict[str, object]:
        return iceberg_config(tmp_path)

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return iceberg_config(tmp_path, create=False)

    def written(self, tmp_path: Path) -> list[bytes]:
        return iceberg_values(tmp_path)


def values(spark: Any, low: int, until: int) -> Any:
    rows = [(json.dumps({"n": n, "s": f"text {n}"}).encode(),) for n in range(low, until)]
    return spark.createDataFrame(rows, "value binary").repartition(2)


class Killed(Exception):
    """The process ends here."""


LAKES: dict[str, tuple[Any, Any, Any, Callable[..., list[Any]]]] = {
    "delta": (delta, delta.DeltaSinkConfig, delta_config, delta_values),
    "iceberg": (iceberg, iceberg.IcebergSinkConfig, iceberg_config, iceberg_values),
}


@pytest.mark.parametrize("lake", sorted(LAKES))
def test_a_batch_that_is_killed_before_or_after_its_commit_is_there_once(
    spark: Any, tmp_path: Path, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, settings, config_of, written = LAKES[lake]
    config = settings(**config_of(tmp_path, schema="n bigint, s string"))
    context = ConnectorContext(pipeline="sinks.lake", state_dir=tmp_path)
    pieces = "mainstem.pipelines.database_tables.rows.arrow_pieces"

    def broken_off(rows: Any) -> Any:
        del rows
        raise Killed

    for number in range(3):
        batch = BatchIdentity("query", number)
        frame = values(spark, number * 10, number * 10 + 10)
        with monkeypatch.context() as patched:
            patched.setattr(pieces, broken_off)
            with pytest.raises(Killed):
                module.write_batch(frame, batch, config, context)
        module.write_batch(frame, batch, config, context)
        # The commit arrived, Spark never heard of it: the batch comes again.
        module.write_batch(frame, batch, config, context)

    assert Counter(written(tmp_path, "n")) == Counter(range(30))
    # A fresh checkpoint is another query and counts from zero.
    module.write_batch(values(spark, 30, 40), BatchIdentity("another", 0), config, context)
    assert Counter(written(tmp_path, "n")) == Counter(range(40))


@pytest.mark.parametrize("lake", sorted(LAKES))
def test_a_schema_that_does_not_fit_the_table_is_told(
    spark: Any, tmp_path: Path, lake: str
) -> None:
    module, settings, config_of, written = LAKES[lake]
    context = ConnectorContext(pipeline="sinks.lake", state_dir=tmp_path)
    config = settings(**config_of(tmp_path, schema="n bigint, s string"))
    module.write_batch(values(spark, 0, 5), BatchIdentity("q", 0), config, context)
    other = settings(**config_of(tmp_path, schema="n bigint, s string, extra string"))
    with pytest.raises(InvalidRequest, match="schema"):
        module.write_batch(values(spark, 5, 9), BatchIdentity("q", 1), other, context)
    assert len(written(tmp_path, "n")) == 5
