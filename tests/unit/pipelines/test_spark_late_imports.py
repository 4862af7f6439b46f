"""Arrow and pandas in Spark's Python processes: there when they are used, and not before."""

import subprocess
import sys

PANDAS = """
import sys
from mainstem.pipelines.spark.processes.deferred_pandas import defer_pandas_import
defer_pandas_import()
import importlib.util, math, pyarrow
pyarrow.array([b"a"]), pyarrow.array([{"a": 1}])
print("pandas" in sys.modules)
importlib.util.find_spec("pandas")
import pandas
print(pyarrow.array(pandas.Series([1.0, math.nan])).null_count)
print(pyarrow.table({"a": [1]}).to_pandas().a.sum())
print(type(pandas.__spec__.loader).__module__, pandas.__loader__ is pandas.__spec__.loader)
"""
PANDAS_ASKED_OF_ARROW = """
from mainstem.pipelines.spark.processes.deferred_pandas import defer_pandas_import
defer_pandas_import()
import math, pyarrow
frame = pyarrow.table({"a": [1.0, math.nan]}).to_pandas()
print(pyarrow.array(frame.a).null_count)
"""
ARROW = """
import sys
from mainstem.pipelines.spark.processes.deferred_arrow import defer_arrow_import
defer_arrow_import()
from pyspark import cloudpickle
import pyspark.sql.worker.plan_data_source_read as planner
import pyspark.sql.worker.write_into_data_source
print("pyarrow.lib" in sys.modules, isinstance(3, planner.pa.RecordBatch))
def made():
    import pyarrow as pa
    def read(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"a": [batch]})
    return read
told = cloudpickle.dumps((planner.records_to_arrow_batches, made()))
print("pyarrow.lib" in sys.modules)
batch = planner.pa.RecordBatch.from_pydict({"a": [1]})
import pyarrow.compute
print(isinstance(batch, planner.pa.RecordBatch), planner.pa.RecordBatch is pyarrow.RecordBatch)
print(pyarrow.compute.sum(batch.column(0)), cloudpickle.loads(told)[1](7).num_rows)
"""


def said(story: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", story],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_arrow_does_without_pandas_and_knows_it_once_somebody_loads_it() -> None:
    assert said(PANDAS) == ["False", "1", "1", "_frozen_importlib_external True"]


def test_arrow_itself_loads_pandas_to_make_a_frame() -> None:
    assert said(PANDAS_ASKED_OF_ARROW) == ["1"]


def test_planners_name_arrow_and_load_it_when_it_is_used() -> None:
    assert said(ARROW) == ["False False", "False", "True True", "1 1"]
