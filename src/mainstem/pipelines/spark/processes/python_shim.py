"""A wrapper of Python that starts ``planner_daemon`` where Spark starts ``pyspark.daemon``.

The daemon of its planners cannot be configured in Spark; their Python can. Spark puts archives of
its own first in Python's path: a copy of the installed pyspark, and a jar that contains no Python.
They are removed, since each process would read and keep their directories.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from mainstem.pipelines.spark.processes.shell_script import cache_folder, write_script
from mainstem.pipelines.spark.processes.source_runner import MODULE

_SHIM: Final = """#!/bin/sh
# Runs Python; Spark's daemon for planners is replaced by a smaller one.
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m mainstem.pipelines.spark.processes.planner_daemon "$@"
elif [ "$1 $2" = "-m {source}" ]; then
    shift 2
    set -- -m mainstem.pipelines.spark.processes.source_runner "$@"
fi
kept=
rest=$PYTHONPATH:
while [ -n "$rest" ]; do
    place=${{rest%%:*}}
    rest=${{rest#*:}}
    case $place in
        {archives}*) ;;
        *) kept=$kept${{kept:+:}}$place ;;
    esac
done
PYTHONPATH=$kept
export PYTHONPATH
exec {python} "$@"
"""


def python_shim(environment: Mapping[str, str], *, cache: Path | None = None) -> Path | None:
    """The wrapper of this interpreter; None if it cannot be written."""
    python = Path(sys.executable)
    mark = sha256(os.fsencode(python)).hexdigest()[:16]
    folder = (cache or cache_folder(environment)) / f"python-{mark}"
    text = _SHIM.format(
        python=shlex.quote(str(python)), source=MODULE, archives=shlex.quote(f"{_home()}/")
    )
    try:
        return write_script(folder / python.name, text)
    except OSError:
        return None


def _home() -> Path:
    """The folder of pyspark, whose archives are not needed if it is completely installed."""
    spark, bridge = (find_spec(name) for name in ("pyspark", "py4j"))
    if spark is None or bridge is None or not spark.origin or not bridge.origin:
        return Path("/nowhere")
    home = Path(spark.origin).parent
    return Path("/nowhere") if Path(bridge.origin).is_relative_to(home) else home
