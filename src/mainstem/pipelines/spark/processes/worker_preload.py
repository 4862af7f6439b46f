"""The modules that Spark's Python workers are forked with: Arrow, the client and the data source.

Loaded objects are frozen, so that the garbage collection that Spark runs after every task considers
the task's objects and not the libraries. Import it in the daemon only; see ``worker_daemon``.
"""

import gc
import socket
from typing import Final

import numpy  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.daemon
import pyspark.sql.conversion
import pyspark.sql.datasource
import pyspark.sql.pandas.types
import pyspark.worker

import mainstem.client.consuming.arrow_columns
import mainstem.pipelines.spark.reading.stream_reader
import mainstem.pipelines.spark.writing.sink
import mainstem.pipelines.spark.writing.task_writer  # noqa: F401
from mainstem.pipelines.spark.processes.deferred_pandas import defer_pandas_import
from mainstem.wire.kafka import codec

# Requests that tasks send, prepared in advance; other versions are prepared on first use.
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

_serve_loudly = pyspark.daemon.worker


_served = 0


def serve(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001
    """Run one task; a broken pipe is normal, because every query stops by closing it."""
    try:
        code: int = _serve_loudly(sock, authenticated)
    except BrokenPipeError:
        return 1
    _keep_what_tasks_loaded()
    return code


def _keep_what_tasks_loaded() -> None:
    """Freezes all objects after the 1st, 2nd, 4th, 8th … task: modules, connections, caches.

    This is rare enough that a garbage cycle at that moment is no relevant leak.
    """
    global _served  # noqa: PLW0603
    _served += 1
    if _served & (_served - 1) == 0:
        gc.collect()
        gc.freeze()


def run_daemon() -> None:
    """Freeze what is loaded, then fork workers for as long as Spark requests them."""
    for name, version in APIS:
        key = codec.KEYS[name]
        codec.prepare(key, version or codec.VERSIONS[key][1])
    pyspark.daemon.worker = serve
    defer_pandas_import()
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
