"""The memory of one pipeline as users run it: ``mainstem-connect run`` under a steady load.

The pipeline reads JSON objects from a topic, masks a field, and routes by another; so many records
a second are let through. Memory is the highest sum, over the process and all that it has started,
while that goes on, starting included.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from bench.figures import Figure
from bench.spark_job import STEPS
from bench.spark_sides import Memory

from mainstem.pipelines.running.status import read_status

RECORDS_PER_SECOND = 20_000
WATCH_S = 1.0
PATIENCE_S = 600.0


def pipeline_memory(servers: str, topic: str, records: int) -> Figure:
    """Runs the pipeline over so many records of a topic.

    Raises:
        RuntimeError: it ended, or is not through after a long time.
    """
    with tempfile.TemporaryDirectory(prefix="bench-memory-") as folder:
        state_dir, log = Path(folder) / "state", Path(folder) / "log"
        file = Path(folder) / "pipelines.yaml"
        file.write_text(yaml.safe_dump(_pipeline(servers, topic, state_dir)))
        command = [str(Path(sys.executable).with_name("mainstem-connect")), "run", str(file)]
        with log.open("wb") as said:
            running = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT
            )
        memory = Memory()
        deadline = time.monotonic() + PATIENCE_S
        try:
            while _passed(state_dir) < records:
                if running.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the pipeline is not through: {log.read_text()[-3_000:]}")
                time.sleep(WATCH_S)
                memory.look(running.pid)
        finally:
            running.terminate()
            try:
                running.wait(60)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
    return Figure(memory.rss_max_mb, {"pss_mb": memory.pss_max_mb})


def _pipeline(servers: str, topic: str, state_dir: Path) -> dict[str, object]:
    source = {
        "connector": "kafka",
        "topic": "orders.masked",
        "config": {"bootstrap_servers": [servers], "topics": [topic], "start": "earliest"},
        "transforms": list(STEPS),
        "rate_limit": {"events_per_second": RECORDS_PER_SECOND},
    }
    return {
        "version": "1.0",
        "broker": {"bootstrap_servers": [servers]},
        "settings": {
            "state_dir": str(state_dir),
            "spark": {"master": "local[2]"},
            "health": {"port": 0},
        },
        "sources": {"orders": source},
    }


def _passed(state_dir: Path) -> int:
    status = read_status(state_dir)
    return 0 if status is None else sum(each.records for each in status.pipelines)
