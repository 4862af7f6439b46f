"""A stand-in for Python that starts ``planner_daemon`` where Spark asks for ``pyspark.daemon``.

Which daemon its planners come from cannot be set in Spark; which Python they run on can.
"""

import os
import shlex
import sys
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from mainstem.pipelines.spark.shell_script import cache_folder, write_script

_SHIM: Final = """#!/bin/sh
# Runs Python; Spark's daemon for planners is replaced by a smaller one.
if [ "$1 $2" = "-m pyspark.daemon" ]; then
    shift 2
    set -- -m mainstem.pipelines.spark.planner_daemon "$@"
fi
exec {python} "$@"
"""


def python_shim(environment: Mapping[str, str], *, cache: Path | None = None) -> Path | None:
    """The stand-in for this interpreter; None where it can be written nowhere."""
    python = Path(sys.executable)
    mark = sha256(os.fsencode(python)).hexdigest()[:16]
    folder = (cache or cache_folder(environment)) / f"python-{mark}"
    text = _SHIM.format(python=shlex.quote(str(python)))
    try:
        return write_script(folder / python.name, text)
    except OSError:
        return None
