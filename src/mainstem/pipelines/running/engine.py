"""The Spark session of a connect process, from the settings of its file."""

import contextlib
import logging
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from mainstem.pipelines.file.model import Settings
from mainstem.pipelines.spark.session import SparkSettings, open_session

APPLICATION = "mainstem-connect"


@contextlib.contextmanager
def engine(settings: Settings) -> Iterator[SparkSession]:
    """A session that ends with the block; when Spark is dead by then nothing is left to end."""
    wanted = settings.spark
    # PySpark prints whole plans, options and all, whenever an analysis fails; the runner tells it.
    logging.getLogger("SQLQueryContextLogger").disabled = settings.log_level != "debug"
    spark = open_session(
        SparkSettings(
            application=APPLICATION,
            master=wanted.master,
            driver_memory=wanted.driver_memory,
            web_interface=wanted.web_interface,
            # What fails is told by the runner, with secrets blanked; Spark's own lines are not.
            log_level="WARN" if settings.log_level == "debug" else "OFF",
            extra=wanted.conf,
        )
    )
    try:
        yield spark
    finally:
        with contextlib.suppress(Py4JError, OSError):
            spark.stop()


def activate(spark: SparkSession) -> None:
    """Make the session known to this thread: Spark looks up Python data sources through it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.SparkSession.setActiveSession(spark._jsparkSession)
