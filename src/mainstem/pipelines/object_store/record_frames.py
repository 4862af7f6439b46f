"""The frame of records that object sources share."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from mainstem.pipelines.connector.wire import key_of_value
from mainstem.pipelines.object_store.source import FileSourceOptions, ObjectsDataSource
from mainstem.pipelines.spark.settings_source import load

FILE_HEADER = "mainstem.file"


def records(
    spark: SparkSession, options: FileSourceOptions, *, key: str | None, streaming: bool
) -> DataFrame:
    """Values of files as records; the file's name is a header, ``key`` a field of the value."""
    frame = load(spark, ObjectsDataSource, options, streaming=streaming)
    header = F.struct(F.lit(FILE_HEADER).alias("key"), F.col("file").cast("binary").alias("value"))
    keys = F.lit(None).cast("binary").alias("key") if key is None else key_of_value(key)
    return frame.select(keys, F.col("value"), F.array(header).alias("headers"))
