"""Dead letters of sinks: once although a batch is repeated, and none is lost when it differs."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from tests.integration.pipelines.stage import (
    CollectingSink,
    NoSettings,
    produce,
    records,
    registry_with,
    running,
)

from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.testing.local_node import LocalNode

pytestmark = pytest.mark.timeout(300)


class FrailSink(CollectingSink):
    """Refuses in two steps what it is told to, then breaks off as often as there are lists left."""

    def __init__(self, *refusals: list[str]) -> None:
        super().__init__()
        self.refusals = list(refusals)

    def write(self, frame: DataFrame, config: NoSettings, context: ConnectorContext) -> Any:
        def keep(batch: DataFrame, batch_id: int) -> None:
            assert context.dead_letters is not None
            text = F.col("value").cast("string")
            refused = self.refusals[0]
            for each in refused:
                context.dead_letters.send(
                    batch.where(text == each).withColumn("error", F.lit("no"))
                )
            if len(self.refusals) > 1:
                self.refusals.pop(0)
                raise ConnectionResetError(104, "it broke off")
            self.values += [bytes(row.value) for row in batch.where(~text.isin(refused)).collect()]

        return frame.writeStream.foreachBatch(keep)


def letters_of(
    sink: FrailSink, topic: str, spark: SparkSession, node: LocalNode, folder: Path
) -> list[str]:
    """What the sink's dead-letter topic holds after four records."""
    produce(node.kafka, topic, [b"a", b"b", b"c", b"d"])
    text = f"""
version: "1.0"
broker: {{bootstrap_servers: ["{node.kafka}"]}}
sinks:
  frail: {{connector: frail, topics: [{topic}], dead_letter_topic: {topic}.dead}}
settings: {{retry: {{initial_backoff_ms: 50, max_backoff_ms: 100}}}}
"""
    with running(text, spark, folder, registry_with(frail=sink)) as run:
        run.until(lambda: sink.values)
    found = [json.loads(record.value or b"") for record in records(node.kafka, f"{topic}.dead")]
    return sorted(base64.b64decode(each["payload_b64"]).decode() for each in found)


def test_a_batch_that_is_repeated_leaves_each_dead_letter_once(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    sink = FrailSink(["b", "d"], ["b", "d"], ["b", "d"])
    found = letters_of(sink, "frail.same", spark, shared_node, tmp_path)
    assert found == ["b", "d"]
    assert sorted(sink.values) == [b"a", b"c"]


def test_what_only_the_repeated_batch_refuses_is_not_lost(
    spark: SparkSession, shared_node: LocalNode, tmp_path: Path
) -> None:
    sink = FrailSink(["b"], ["c"])
    found = letters_of(sink, "frail.other", spark, shared_node, tmp_path)
    assert found == ["b", "c"]
    assert sorted(sink.values) == [b"a", b"b", b"d"]
