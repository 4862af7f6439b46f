"""A driver that asks every executor what it works with, then runs a file once: file, tasks.

One session does both, because the start of executors costs more than all of their work here. Writes
``executors.json`` beside the file.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

from mainstem.model.records import columns
from mainstem.pipelines.file.loader import read_file
from mainstem.pipelines.running.runner import PipelineRunner
from mainstem.pipelines.running.spark_session import engine
from mainstem.pipelines.running.state_folder import StateFolder


def look(number: int) -> dict[str, object]:
    """Runs in a Python worker of an executor, whose folder is the working directory."""
    time.sleep(0.2)  # long enough that no executor takes all tasks
    return {
        "task": number,
        "folder": str(Path.cwd()),
        "python": sys.executable,
        "preloaded": "mainstem.pipelines.spark.processes.worker_preload" in sys.modules,
        "native": columns.COMPILED is not None,
    }


def main(path: str, tasks: str) -> int:
    """0 when every pipeline did all there was to do."""
    file = read_file(Path(path), os.environ)
    settings = file.model.settings
    with StateFolder(Path(settings.state_dir)) as folder, engine(settings) as spark:
        numbers = spark.sparkContext.parallelize(range(int(tasks)), int(tasks))
        Path(path).with_name("executors.json").write_text(json.dumps(numbers.map(look).collect()))
        runner = PipelineRunner(file, spark, folder.path, once=True)
        summary = runner.run(threading.Event(), lambda status: None)
    failures = [each.error for each in runner.status.pipelines if each.error]
    if failures:
        sys.stderr.write("\n".join(failures))
    return len(summary.failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
