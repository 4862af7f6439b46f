"""Spark with its own Kafka connector, told what to do line by line: servers, jars, tasks at once.

Runs in the virtual environment that the client suite keeps for it, since the connector's jars have
to be of Spark's own version. Each line of the input is a JSON list: a load and what it needs; each
answer a JSON object.
"""

import json
import sys
import tempfile
from collections.abc import Callable

from pyspark.sql import SparkSession


def main(servers: str, jars: str, tasks: str) -> None:
    """Does what it is told until the input ends."""
    spark = (
        SparkSession.builder.master(f"local[{tasks}]")
        .config("spark.jars", jars)
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.locality.wait", "0s")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        load, *given = json.loads(line)
        answer = LOADS[load](spark, servers, *given)
        print(json.dumps(answer), flush=True)
    spark.stop()


def read(spark: SparkSession, servers: str, topic: str) -> dict[str, object]:
    """All rows, to nowhere."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
    reader.option("subscribe", topic).load().write.format("noop").mode("overwrite").save()
    return {}


def write(spark: SparkSession, servers: str, topic: str, rows: int) -> dict[str, object]:
    """So many rows of a hundred bytes."""
    frame = spark.range(rows, numPartitions=2).selectExpr(
        "cast(id AS string) AS key", "lpad(cast(id AS string), 100, 'x') AS value"
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", servers)
    writer.option("topic", topic).mode("append").save()
    return {}


def floor(spark: SparkSession, servers: str, source: str, target: str) -> dict[str, object]:
    """Micro-batches of a hundred rows, from one topic to another."""
    with tempfile.TemporaryDirectory() as folder:
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="100")
            .load()
            .select("value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .options(topic=target, checkpointLocation=folder)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return {"ms": [p["durationMs"]["triggerExecution"] for p in query.recentProgress]}


LOADS: dict[str, Callable[..., dict[str, object]]] = {"read": read, "write": write, "floor": floor}

if __name__ == "__main__":
    main(*sys.argv[1:])
