"""What object sources share: the frame of records out of files."""

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mainstem.pipelines.connectors._object_source import Place

FILE_HEADER = "mainstem.file"


def records(
    spark: "SparkSession", place: "Place", *, key: str | None, streaming: bool
) -> "DataFrame":
    """Values of files as records; the file's name is a header, ``key`` a field of the value."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    from mainstem.pipelines.connectors._object_source import ObjectsDataSource  # noqa: PLC0415

    spark.dataSource.register(ObjectsDataSource)
    reader = spark.readStream if streaming else spark.read
    # The name of the option keeps it out of plans: it may hold the keys of a bucket.
    options = {"secretplace": msgspec.json.encode(place).decode()}
    frame = reader.format(ObjectsDataSource.name()).options(**options).load()
    header = F.struct(F.lit(FILE_HEADER).alias("key"), F.col("file").cast("binary").alias("value"))
    keys = F.lit(None).cast("binary")
    if key is not None:
        parsed = F.try_parse_json(F.col("value").cast("string"))
        keys = F.try_variant_get(parsed, f"$.{key}", "string").cast("binary")
    return frame.select(keys.alias("key"), F.col("value"), F.array(header).alias("headers"))
