"""The Spark session of a connect process, from the settings of its file."""

import contextlib
import importlib
import logging
import sys
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from mainstem.pipelines.file.model import Settings
from mainstem.pipelines.spark.session import SparkSettings, open_session

APPLICATION = "mainstem-connect"


@contextlib.contextmanager
def engine(settings: Settings) -> Iterator[SparkSession]:
    """A session that is stopped at the end of the block, unless Spark has already terminated."""
    wanted = settings.spark
    _load_converters()
    # PySpark prints complete plans with options when an analysis fails; the runner reports it.
    logging.getLogger("SQLQueryContextLogger").disabled = settings.log_level != "debug"
    spark = open_session(
        SparkSettings(
            application=APPLICATION,
            master=wanted.master,
            driver_memory=wanted.driver_memory,
            web_interface=wanted.web_interface,
            # The runner reports failures with secrets hidden; Spark's own lines would show them.
            log_level="WARN" if settings.log_level == "debug" else "OFF",
            extra=wanted.conf,
        )
    )
    try:
        yield spark
    finally:
        with contextlib.suppress(Py4JError, OSError):
            spark.stop()


def _load_converters() -> None:
    """Loads PySpark's argument converters without pandas and Arrow, 77 MB of the driver.

    To check whether NumPy is installed they load PySpark's test helpers, and those load all three
    if they can. Modules that were loaded before are kept, and both can be loaded later.
    """
    helpers = "pyspark.testing.utils"
    hidden = [name for name in ("pandas", "pyarrow") if name not in sys.modules]
    if helpers in sys.modules:
        return
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        importlib.import_module(helpers)
    finally:
        for name in hidden:
            del sys.modules[name]


def activate(spark: SparkSession) -> None:
    """Make the session active in this thread: Spark looks up Python data sources through it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
