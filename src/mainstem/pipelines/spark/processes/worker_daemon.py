"""The process from which Spark forks its Python workers.

Spark runs it as ``python -m mainstem.pipelines.spark.processes.worker_daemon``. It behaves as
``pyspark.daemon`` does, but faster: workers are forked with the required modules already loaded
(``worker_preload``), and pyspark is loaded from its installation instead of from the zip file that
Spark puts first in the path. Spark clears the import caches after every task, and Python then reads
the directory of that zip file again, which takes longer than a small task.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def main() -> None:
    """Choose the location of pyspark, then load and serve."""
    prefer_installed()
    from mainstem.pipelines.spark.processes.worker_preload import run_daemon

    run_daemon()


def prefer_installed() -> None:
    """Removes Spark's zip files from the path if the same pyspark is installed."""
    assert "pyspark" not in sys.modules, "the choice comes before the first import"
    zipped = [place for place in sys.path if _is_library_of_spark(place)]
    others = [place for place in sys.path if place not in zipped]
    found = PathFinder.find_spec("pyspark", others)
    if found is None or PathFinder.find_spec("py4j", others) is None:
        return
    homes = [Path(place) for place in found.submodule_search_locations or ()]
    if not all(any(Path(place).is_relative_to(home) for home in homes) for place in zipped):
        return  # another Spark's
    sys.path[:] = others
    for place in zipped:
        sys.path_importer_cache.pop(place, None)


def _is_library_of_spark(place: str) -> bool:
    name = Path(place).name
    named = (("pyspark", ".zip"), ("py4j-", ".zip"), ("spark-core_", ".jar"))
    return any(name.startswith(first) and name.endswith(last) for first, last in named)


if __name__ == "__main__":
    main()
