"""One Spark session for all pipeline tests of a worker: starting one costs 12 CPU seconds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mainstem.pipelines.spark.session import SparkSettings, open_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Embedded Spark on two cores with half a gigabyte of heap."""
    scratch = tmp_path_factory.mktemp("spark")
    settings = SparkSettings(
        application="tests",
        master="local[2]",
        driver_memory="512m",
        extra={
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            # The second compiler does not earn back its cost in a few minutes of small queries.
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={_short_folder(scratch)} "
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    session = open_session(settings)
    yield session
    session.stop()


def _short_folder(scratch: Path) -> Path:
    """Spark makes its sockets below it, and their paths may have 100 characters at most."""
    folder = scratch / "tmp"
    folder.mkdir()
    return folder if len(os.fsencode(folder)) < 50 else Path("/tmp")
