"""Makes the Python processes in which Spark plans and commits cheap to call again.

Tasks run in workers of our own daemon; planning and committing in workers of Spark's, which cannot
be replaced. After every call Spark collects garbage over all that is loaded there, and makes Python
read the directory of its zip file anew: together more than everything else that such a call does.
Promise: what a process can do is unchanged.
"""

import gc
import sys
from typing import Final

_PLANNERS: Final = ("pyspark.sql.worker.", "pyspark.sql.streaming.")
_frozen: list[bool] = []


def tune_planner() -> None:
    """To be called once per call; does nothing in other processes than Spark's planners."""
    if len(sys.argv) < 2 or not sys.argv[1].startswith(_PLANNERS):
        return
    if not _frozen:
        _frozen.append(True)
        gc.collect()
        gc.freeze()
    # Found again, from what Python remembers of the file, when something is imported.
    for place in [each for each in sys.path_importer_cache if each.endswith(".zip")]:
        del sys.path_importer_cache[place]
