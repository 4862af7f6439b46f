"""The process from which Spark forks its Python workers: loads what they need, once.

Spark runs it as ``python -m mainstem.pipelines.spark.worker_daemon``. Promise: it does what
``pyspark.daemon`` does. The difference is where time goes: the workers are forked with Arrow, the
client and the data source already loaded, and the loaded objects are frozen, so that the garbage
collection that Spark runs after every task looks at the task's objects and not at the libraries.
"""

import gc
from typing import Final

import numpy  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.sql.conversion
import pyspark.sql.datasource
import pyspark.sql.pandas.types
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import mainstem.pipelines.spark.sink
import mainstem.pipelines.spark.stream_reader  # noqa: F401
from mainstem.wire.kafka import codec

# What tasks say to a node; a newer or older one is spoken to all the same.
APIS: Final = (
    ("ApiVersions", None),
    ("Metadata", None),
    ("ListOffsets", None),
    ("Fetch", None),
    ("Produce", None),
    ("FindCoordinator", None),
    ("InitProducerId", None),
    ("EndTxn", None),
    ("ListTransactions", None),
    ("OffsetCommit", 9),
)


def main() -> None:
    """Load, freeze, serve."""
    for name, version in APIS:
        key = codec.KEYS[name]
        codec.prepare(key, version or codec.VERSIONS[key][1])
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
