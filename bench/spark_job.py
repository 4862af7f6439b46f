"""This repository's Spark side as a process of its own, told what to do line by line.

    python bench/spark_job.py SERVERS FOLDER TASKS

Each line of the input is a JSON list: a load and what it needs; each answer a JSON object. The
session is the one that every user gets.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig
from mainstem.pipelines.connector.shapes import ConnectorContext
from mainstem.pipelines.connectors.postgres_cdc import PostgresCdcSource
from mainstem.pipelines.spark.session import SparkSettings, open_session
from mainstem.pipelines.transforms import compile_steps

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "mainstem"
FLOOR_ROWS = 100
STEPS = (
    {"type": "mask_field", "config": {"fields": ["email"], "method": "sha256"}},
    {
        "type": "content_router",
        "config": {
            "routes": [
                {"field": "country", "value": "de", "topic": "orders.de"},
                {"field": "country", "value": "us", "topic": "orders.us"},
            ],
            "default_topic": "orders.rest",
        },
    },
)
# Objects of about a hundred bytes.
DOCUMENT = """concat(
    '{"id":', id, ',"email":"user', id % 5000, '@example.com","country":"',
    element_at(array('de', 'fr', 'us', 'jp'), cast(id % 4 + 1 AS int)),
    '","amount":', id % 1000, '.5,"note":"', repeat('x', 20), '"}')"""


class Job:
    """The loads, in one session."""

    def __init__(self, servers: str, folder: Path, tasks: int) -> None:
        self._node = {"kafka.bootstrap.servers": servers}
        self._folder = folder
        self._tasks = tasks
        extra = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
        self._spark = open_session(SparkSettings(master=f"local[{tasks}]", extra=extra))

    def read(self, topic: str) -> dict[str, Any]:
        """Reads a topic to nowhere."""
        frame = self._spark.read.format(FORMAT).options(**self._node, subscribe=topic).load()
        frame.write.format("noop").mode("overwrite").save()
        return {}

    def write(self, topic: str, rows: int) -> dict[str, Any]:
        """Writes so many rows of a hundred bytes."""
        return self._write(topic, rows, "lpad(cast(id AS string), 100, 'x')")

    def write_documents(self, topic: str, rows: int) -> dict[str, Any]:
        """Writes so many JSON objects."""
        return self._write(topic, rows, DOCUMENT)

    def _write(self, topic: str, rows: int, value: str) -> dict[str, Any]:
        frame = self._spark.range(rows, numPartitions=self._tasks).selectExpr(
            "cast(id AS string) AS key", f"{value} AS value"
        )
        frame.write.format(FORMAT).options(**self._node, topic=topic).mode("append").save()
        return {}

    def steps(self, topic: str) -> dict[str, Any]:
        """Reads JSON objects as pipelines do, masks, routes and writes them anew, to nowhere."""
        plan = compile_steps(STEPS, "steps")
        frame = (
            self._spark.read.format(FORMAT)
            .options(**self._node, subscribe=topic)
            .option("includePlainFields", str(plan.reads_fields).lower())
            .load()
        )
        wire = frame.drop("partition", "offset", "timestampType")
        marked = plan.marked(wire)
        marked.write.format("noop").mode("overwrite").save()
        return {}

    def floor(self, source: str, target: str) -> dict[str, Any]:
        """How long micro-batches of a hundred rows take, from one topic to another."""
        query = (
            self._spark.readStream.format(FORMAT)
            .options(**self._node, subscribe=source, startingOffsets="earliest")
            .option("maxOffsetsPerTrigger", str(FLOOR_ROWS))
            .load()
            .select("value")
            .writeStream.format(FORMAT)
            .options(**self._node, topic=target)
            .option("checkpointLocation", str(self._folder / target))
            .trigger(availableNow=True)
            .start()
        )
        progress = _ended(query)
        return {"ms": [each["durationMs"]["triggerExecution"] for each in progress]}

    def follow(self, port: int, slot: str, rows: int) -> dict[str, Any]:
        """All that a slot has to tell: at first the rows of the tables, later their changes."""
        config = PostgresCdcConfig(port=port, host="127.0.0.1", database="postgres", slot_name=slot)
        context = ConnectorContext(pipeline="bench", state_dir=self._folder / f"state-{slot}")
        frame = PostgresCdcSource().read(self._spark, config, context)
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", str(self._folder / f"checkpoint-{slot}"))
            .trigger(availableNow=True)
            .start()
        )
        told = sum(each["numInputRows"] for each in _ended(query))
        if told != rows:
            raise RuntimeError(f"{told} events where {rows} are expected")
        return {}


def _ended(query: "StreamingQuery") -> list[Any]:
    query.awaitTermination()
    return list(query.recentProgress)


def main(servers: str, folder: str, tasks: str) -> None:
    """Does what it is told until the input ends."""
    job = Job(servers, Path(folder), int(tasks))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        load, *given = json.loads(line)
        print(json.dumps(getattr(job, load)(*given)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
