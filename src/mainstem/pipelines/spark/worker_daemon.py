"""The process from which Spark forks its Python workers: loads what they need, once.

Spark runs it as ``python -m mainstem.pipelines.spark.worker_daemon``. Promise: it does what
``pyspark.daemon`` does. The difference is where time goes: the workers are forked with Arrow, the
client and the data source already loaded, and the loaded objects are frozen, so that the garbage
collection that Spark runs after every task looks at the task's objects and not at the libraries.
"""

import gc

import numpy  # noqa: F401
import pandas  # noqa: F401
import pyarrow
import pyarrow.compute  # noqa: F401
import pyspark.sql.conversion
import pyspark.sql.datasource
import pyspark.sql.pandas.types
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()
