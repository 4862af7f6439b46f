"""A Spark job that writes to and reads from Kafka topics with Spark's own source and sink.

    job.py <bootstrap> <source topic> <batch copy topic> <stream copy topic> <folder> <count> <jars>

1. batch: writes ``count`` rows (key, value, headers, every partition) to the source topic,
2. batch: reads them back whole and by timestamp, and copies them to the batch copy topic,
3. streaming: copies the source topic in micro-batches, is stopped, gets more rows, and goes on from
   its checkpoint.

What it saw goes to standard output as one JSON line.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def main() -> None:
    bootstrap, source, batch, stream, folder, number, jars = sys.argv[1:]
    count = int(number)
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("kafka source and sink")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    checkpoint = str(Path(folder) / "checkpoint")

    write(rows(spark, 0, count), bootstrap, source)
    found = read(spark, bootstrap, source)
    seen = summary(found)
    [[middle]] = found.agg(f.expr("percentile_approx(timestamp, 0.5)")).collect()
    since_ms = int(middle.timestamp() * 1000)
    later = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingTimestamp", str(since_ms))
        .load()
    )
    since = later.count()
    # A partition is read from its first record of that time on, whatever the times behind it.
    starts = found.where(f.col("timestamp") >= f.timestamp_millis(f.lit(since_ms)))
    starts = starts.groupBy("partition").agg(f.min("offset").alias("start"))
    expected = found.join(starts, "partition").where(f.col("offset") >= f.col("start")).count()
    write(found.select("key", "value", "headers"), bootstrap, batch)

    copy(spark, bootstrap, source, stream, checkpoint)
    first = read(spark, bootstrap, stream).count()
    write(rows(spark, count, 2 * count), bootstrap, source)
    copy(spark, bootstrap, source, stream, checkpoint)
    result = {
        "source": seen,
        "since": [since, expected],
        "batch": summary(read(spark, bootstrap, batch)),
        "stream_first": first,
        "stream": summary(read(spark, bootstrap, stream)),
    }
    sys.stdout.write(json.dumps(result) + "\n")
    spark.stop()


def rows(spark: SparkSession, start: int, until: int) -> DataFrame:
    number = f.col("id").cast("string")
    header = f.struct(f.lit("number").alias("key"), number.cast("binary").alias("value"))
    return spark.range(start, until).select(
        f.concat(f.lit("key-"), f.col("id") % 100).alias("key"),
        f.concat(f.lit("value-"), number).alias("value"),
        f.array(header).alias("headers"),
    )


def write(frame: DataFrame, bootstrap: str, topic: str) -> None:
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).option("includeHeaders", "true").save()


def read(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("includeHeaders", "true").load()


def copy(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    reader = reader.option("subscribe", source).option("startingOffsets", "earliest")
    frame = reader.option("includeHeaders", "true").option("maxOffsetsPerTrigger", "400").load()
    writer = frame.select("key", "value", "headers").writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", bootstrap).option("topic", target)
    writer = writer.option("includeHeaders", "true").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def summary(frame: DataFrame) -> list[object]:
    """How many rows, how many different ones, and a sum over their contents."""
    content = f.concat_ws(
        "|",
        f.col("key").cast("string"),
        f.col("value").cast("string"),
        f.col("headers")[0]["key"],
        f.col("headers")[0]["value"].cast("string"),
    )
    [row] = (
        frame.select(content.alias("content"))
        .agg(f.count("content"), f.countDistinct("content"), f.sum(f.crc32("content")))
        .collect()
    )
    return list(row)


if __name__ == "__main__":
    main()
