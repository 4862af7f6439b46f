"""Where Spark's Python workers load pyspark from."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

STORY = """
from mainstem.pipelines.spark.processes.worker_daemon import prefer_installed
prefer_installed()
import pyspark, py4j
print(pyspark.__file__)
print(py4j.__file__)
"""


def loaded_from(*zipped: Path) -> list[str]:
    """Where a process finds the two with Spark's own files first in its path."""
    path = os.pathsep.join(map(str, zipped))
    done = subprocess.run(
        [sys.executable, "-c", STORY],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()


def libraries() -> list[Path]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return sorted((Path(spec.origin).parent / "python" / "lib").glob("*.zip"))


def test_the_installed_pyspark_is_preferred_to_its_own_zip_file() -> None:
    assert not [place for place in loaded_from(*libraries()) if ".zip" in place]


def test_another_sparks_zip_file_is_left_in_front(tmp_path: Path) -> None:
    others = []
    for library in libraries():
        others.append(tmp_path / library.name)
        others[-1].write_bytes(library.read_bytes())
    assert all(str(tmp_path) in place for place in loaded_from(*others))
