"""A driver that copies a topic for ever, to be killed: servers, source, target, folder."""

import sys

from mainstem.pipelines.spark.session import SparkSettings, open_session


def main(servers: str, source: str, target: str, folder: str) -> None:
    """Copies in many small batches."""
    spark = open_session(SparkSettings(master="local[2]", driver_memory="512m"))
    rows = (
        spark.readStream.format("mainstem")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "60")
        .load()
    )
    query = (
        rows.select("key", "value", "timestamp")
        .writeStream.format("mainstem")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
