"""The session runs, on the machine's Java or on the one that pip installed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.udf import _wrap_function

from mainstem.pipelines.spark.data_source import MainstemSource
from mainstem.pipelines.spark.java import find_java_home, java_version

# Starting Spark takes a while on a busy machine.
pytestmark = pytest.mark.timeout(300)

JOB = """
import sys
import time
from mainstem.pipelines.spark.session import SparkSettings, open_session
spark = open_session(SparkSettings(master="local[1]", driver_memory="512m"))
print("rows", spark.range(5).count(), flush=True)
"""


def test_a_query_runs_with_python_workers_of_this_interpreter(spark: SparkSession) -> None:
    found = spark.range(1, numPartitions=1).rdd.map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


def test_pipelines_may_plan_with_one_source_at_the_same_moment(spark: SparkSession) -> None:
    """Spark adds to this map from any thread; a plain one is broken for good by two of them."""
    environment = _wrap_function(spark.sparkContext, MainstemSource).envVars()
    assert environment.getClass().getName() == "java.util.concurrent.ConcurrentHashMap"
    assert environment["PYTHONHASHSEED"] == "0"


def test_spark_runs_on_the_java_that_pip_installed(tmp_path: Path) -> None:
    bare = os.environ | {"PATH": "/usr/bin:/bin", "XDG_CACHE_HOME": str(tmp_path)}
    bare.pop("JAVA_HOME", None)
    # A folder of programs without any Java, as on a machine that has none.
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for program in Path(folder).iterdir():
            link = programs / program.name
            if program.name != "java" and not link.exists():
                link.symlink_to(program)
    bare["PATH"] = str(programs)
    home = find_java_home(bare)
    assert home.is_relative_to(tmp_path)
    assert (java_version(home / "bin" / "java") or 0) >= 17
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env=bare,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=110,
        check=False,
    )
    assert "rows 5" in done.stdout, done.stderr[-2_000:]


def test_who_is_asked_seldom_rests_in_between(spark: SparkSession) -> None:
    def columns() -> list[str]:
        options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "nothing"}
        return spark.read.format("mainstem").options(**options).load().columns

    def resting() -> list[int]:
        return [
            each.pid
            for each in psutil.Process().children(recursive=True)
            if {"--resting", "pyspark.sql.worker.create_data_source"} <= set(arguments(each))
        ]

    first = columns()
    deadline = time.monotonic() + 30
    while not resting() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert resting()
    assert columns() == first


def arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
