"""The process in which Spark asks a stream for its offsets: PySpark's own, without Arrow.

Spark runs one per stream, for as long as the stream runs; ``python_shim`` starts it.
"""

import runpy

from mainstem.pipelines.spark.processes.deferred_arrow import defer_arrow_import

MODULE = "pyspark.sql.streaming.python_streaming_source_runner"

if __name__ == "__main__":
    defer_arrow_import()
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
