"""What the process of a pipeline loads before Spark starts."""

import subprocess
import sys

STORY = """
import sys
{before}
import mainstem.pipelines.running.runner
from mainstem.pipelines.running.spark_session import _load_converters
_load_converters()
print(*(name for name in ("pandas", "pyarrow") if name in sys.modules))
from pyspark.sql.types import NumpyScalarConverter
assert "pyspark.testing.utils" in sys.modules
import pandas, pyarrow
print(pandas.Series([1]).sum(), len(pyarrow.array([1])))
"""


def told(before: str = "") -> list[str]:
    """What a fresh process says."""
    done = subprocess.run(
        [sys.executable, "-c", STORY.format(before=before)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.splitlines()


def test_neither_pandas_nor_arrow_is_loaded_and_both_can_be_later() -> None:
    assert told() == ["", "1 1"]


def test_what_was_loaded_before_stays() -> None:
    assert told("import pyarrow") == ["pyarrow", "1 1"]
