"""A stand-in for Python that starts ``planner_daemon`` where Spark asks for ``pyspark.daemon``.

Which daemon its planners come from cannot be set in Spark; which Python they run on can. Spark puts
archives of its own in front of Python's path: the pyspark that is installed, once more, and a jar
that holds no Python. They are left out, since each process would read and keep their directories.
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
    """The stand-in for this interpreter; None where it can be written nowhere."""
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
    """The folder of pyspark, whose archives are of no use where all of it is installed."""
    spark, bridge = (find_spec(name) for name in ("pyspark", "py4j"))
    if spark is None or bridge is None or not spark.origin or not bridge.origin:
        return Path("/nowhere")
    home = Path(spark.origin).parent
    return Path("/nowhere") if Path(bridge.origin).is_relative_to(home) else home
