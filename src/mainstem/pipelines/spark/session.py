"""The Spark session of pipelines, notebooks and tests, with suitable settings.

    spark = open_session()                       # embedded: local[*]
    spark.read.format("mainstem").option("kafka.bootstrap.servers", "localhost:9092")...

Guarantees: Java is found or its absence explained; Python workers run on this interpreter;
``format("mainstem")`` is registered; every setting can be overridden through ``settings.extra``. A
process has one session: opening it again returns it and sets only what may change at run time.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mainstem.pipelines.spark.data_source import MainstemSource
from mainstem.pipelines.spark.java import find_java_home, quick_fork_flags
from mainstem.pipelines.spark.processes.python_shim import python_shim

EMBEDDED: Final = "local[*]"
_LOCAL: Final = "local"
_CORES_FEW: Final = 2
_HEAP_FIRST_MB: Final = 256
# Renames are atomic on a local disk, and the default manager forks a process for each of them.
_LOCAL_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to run Spark.

    ``master`` is ``local[*]`` (inside this process), ``local[N]``, ``spark://host:port``, ``yarn``
    or ``k8s://address``. ``extra`` is passed to Spark unchanged and overrides everything else.
    """

    application: str = "mainstem"
    master: str = EMBEDDED
    driver_memory: str = "1g"
    log_level: str = "ERROR"
    web_interface: bool = False
    extra: Mapping[str, str] = {}


def open_session(settings: SparkSettings | None = None) -> SparkSession:
    """Starts Spark, or returns the session that this process has.

    Raises:
        InvalidRequest: there is no Java to run it on.
    """
    wanted = settings or SparkSettings()
    # Spark starts Java from the environment of this process and has no other setting.
    home = find_java_home(os.environ)
    os.environ["JAVA_HOME"] = str(home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # Machines of a cluster do not have this program.
    shim = python_shim(os.environ) if wanted.master.startswith(_LOCAL) else None
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", str(shim or sys.executable))
    # Java has dozens of threads, and by default the C library keeps separate memory for each.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    builder = SparkSession.builder.appName(wanted.application).master(wanted.master)
    for name, value in (spark_options(wanted, home) | dict(wanted.extra)).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    context = session.sparkContext
    context.setLogLevel(wanted.log_level)
    if shim is not None and context.pythonExec == sys.executable:
        context.pythonExec = str(shim)
    _share_environment(context)
    register(session)
    return session


def _share_environment(context: SparkContext) -> None:
    """Makes the environment map of a registered source safe for concurrent planning.

    Spark adds to this map whenever it plans with the source. The plain map that it creates from a
    Python one can become inconsistent when two threads do so at once; from then on no task that
    contains it can be deserialised (``OptionalDataException``), until the process ends.
    """
    assert context._jvm is not None, "a session of this process has a Java gateway"
    shared = context._jvm.java.util.concurrent.ConcurrentHashMap(context.environment)
    context.environment = shared


def register(session: SparkSession) -> None:
    """Registers ``format("mainstem")`` in a session that was opened by other code."""
    session.dataSource.register(MainstemSource)


def spark_options(settings: SparkSettings, java_home: Path) -> dict[str, str]:
    """The Spark settings of a session; ``docs/guides/spark.md`` has the measurements."""
    flags = quick_fork_flags(java_home)
    options = {
        "spark.driver.memory": settings.driver_memory,
        "spark.ui.enabled": str(settings.web_interface).lower(),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": settings.log_level,
        "spark.sql.session.timeZone": "UTC",
        "spark.redaction.regex": "(?i)secret|passw|token|jaas|credential|key",
        "spark.pyspark.python": sys.executable,
        "spark.python.daemon.module": "mainstem.pipelines.spark.processes.worker_daemon",
        # Tasks use Unix sockets to Python workers of their machine: 45 ms less per task than TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        # Micro-batches are small and split by the source: waiting for data locality, or adaptive
        # planning at run time, costs more than it saves.
        "spark.locality.wait": "0s",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    if settings.master.startswith(_LOCAL):
        cores = _cores(settings.master)
        options |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(max(2, cores)),
            "spark.sql.streaming.checkpointFileManagerClass": _LOCAL_CHECKPOINTS,
        }
        if cores <= _CORES_FEW:
            # The default collector uses more cores and a third more memory. Java would start with
            # a heap of a 64th of the machine's memory and fill it before it collects garbage.
            flags += ["-XX:+UseSerialGC", f"-Xms{_HEAP_FIRST_MB}m"]
    if flags:
        options["spark.driver.extraJavaOptions"] = " ".join(flags)
    return options


def _cores(master: str) -> int:
    """The number of parallel tasks of a local master."""
    found = re.match(r"local\[(\d+)", master)
    if found is not None:
        return int(found[1])
    return 1 if master == _LOCAL else os.cpu_count() or 1
