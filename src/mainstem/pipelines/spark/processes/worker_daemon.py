"""The process from which Spark forks its Python workers.

Spark runs it as ``python -m mainstem.pipelines.spark.processes.worker_daemon``. It does what
``pyspark.daemon`` does. The difference is where time goes. Workers are forked with what they need
already loaded (``worker_preload``), and pyspark is loaded from where pip put it instead of from the
zip file that Spark puts in front of it: Spark forgets what is known of the path after every task,
and Python then reads the directory of that file anew, which takes longer than a small task.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def main() -> None:
    """Choose where pyspark comes from, then load and serve."""
    prefer_installed()
    from mainstem.pipelines.spark.processes.worker_preload import run_daemon  # noqa: PLC0415

    run_daemon()


def prefer_installed() -> None:
    """Leaves Spark's zip files out of the path where the very same pyspark is installed."""
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
