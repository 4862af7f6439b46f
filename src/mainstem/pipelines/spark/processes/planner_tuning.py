"""Makes repeated calls of Spark's planning and committing Python processes cheap.

Tasks run in workers of ``worker_daemon``; planning and committing run in workers of Spark, which
cannot be replaced. After every call Spark collects garbage over all loaded objects, and makes
Python read the directory of its zip file again: together this costs more than the rest of such a
call. Guarantee: the capabilities of a process are unchanged.
"""

import gc
import sys
from typing import Final

_PLANNERS: Final = ("pyspark.sql.worker.", "pyspark.sql.streaming.")
_frozen: list[bool] = []


def tune_planner() -> None:
    """Must be called once per call; does nothing in processes other than Spark's planners."""
    if len(sys.argv) < 2 or not sys.argv[1].startswith(_PLANNERS):
        return
    if not _frozen:
        _frozen.append(True)
        gc.collect()
        gc.freeze()
    # Found again, through Python's cache of the file, when something is imported.
    for place in [each for each in sys.path_importer_cache if each.endswith(".zip")]:
        del sys.path_importer_cache[place]
