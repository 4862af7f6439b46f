"""The connectors of the house pass the suite that every connector inherits."""

from pathlib import Path
from typing import Any

import pytest

from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.pipelines.connectors import datagen, stdout
from mainstem.testing.connector_suite import SinkSuite, SourceSuite

pytestmark = pytest.mark.timeout(180)


class TestDatagen(SourceSuite):
    connector = datagen.SOURCE
    rows = 25

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {"kind": "orders", "count": self.rows, "rows_per_second": None, "tasks": 2}

    def broken_config(self, tmp_path: Path) -> dict[str, object] | None:
        return {"kind": "orders", "key": "no_such_column"}


class TestStdout(SinkSuite):
    connector = stdout.SINK

    @pytest.fixture(autouse=True)
    def _captured(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.printed: list[str] = []
        self.capsys = capsys

    def config(self, tmp_path: Path) -> dict[str, object]:
        return {"format": "value"}

    def written(self, tmp_path: Path) -> list[bytes]:
        self.printed += self.capsys.readouterr().out.splitlines()
        return [line.encode() for line in self.printed]


def test_made_up_rows_do_not_depend_on_how_they_are_cut(spark: Any, tmp_path: Path) -> None:
    def rows(tasks: int) -> set[bytes]:
        config = datagen.DatagenConfig(kind="sensors", count=50, tasks=tasks)
        context = ConnectorContext(pipeline="p", state_dir=tmp_path, streaming=False)
        frame = datagen.SOURCE.read(spark, config, context)
        return {bytes(row.value) for row in frame.collect()}

    assert len(rows(1)) == 50
    assert rows(1) == rows(3)


def test_passwords_do_not_show_in_plans(spark: Any) -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "subscribe": "t",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "hunter2hunter2",
    }
    frame = spark.readStream.format("mainstem").options(**options).load()
    plan = frame._jdf.queryExecution().toString()
    assert "kafka.sasl.username=u" in plan
    assert "hunter2hunter2" not in plan
