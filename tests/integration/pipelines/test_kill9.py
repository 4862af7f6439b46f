"""A connect process is killed with everything it started; the topic holds each row once."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from tests.integration.pipelines.stage import records

from mainstem.cli.failure import ExitCode
from mainstem.testing.local_node import LocalNode

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

ROWS = 1_000
PATIENCE_S = 170.0
RUN = "from mainstem.cli.main import main; import sys; main(['pipeline', 'run', *sys.argv[1:]])"


class Connect:
    """``mainstem-connect run`` in a process group of its own."""

    def __init__(self, file: Path, state_dir: Path, log: Path) -> None:
        self._state_dir = state_dir
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-c", RUN, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def records(self) -> int:
        """How many records this process has written, as it says itself."""
        try:
            status = json.loads((self._state_dir / "status.json").read_bytes())
        except FileNotFoundError:
            return 0
        if status["pid"] != self._process.pid:
            return 0
        return sum(each["records"] for each in status["pipelines"] if each["id"] == "sources.rows")

    def until(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.records() < count:
            assert self._process.poll() is None, self._log.read_text()[-3_000:]
            assert time.monotonic() < deadline, self._log.read_text()[-3_000:]
            time.sleep(0.05)

    def kill9(self) -> None:
        """The whole group: Python, Java, the Python workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_spark(self) -> int:
        """Only Java: the process must notice by itself and end."""
        [java] = [
            child
            for child in psutil.Process(self._process.pid).children(recursive=True)
            if child.name() == "java"
        ]
        java.kill()
        try:
            return self._process.wait(PATIENCE_S)
        finally:
            self.kill9()

    def stop(self) -> int:
        self._process.terminate()
        try:
            return self._process.wait(PATIENCE_S)
        finally:
            if self._process.poll() is None:
                self.kill9()


def test_every_row_is_in_the_topic_once_however_often_the_process_is_killed(
    shared_node: LocalNode, tmp_path: Path
) -> None:
    file = tmp_path / "pipeline.yaml"
    state = tmp_path / "state"
    file.write_text(
        f"""
version: "1.0"
broker: {{bootstrap_servers: ["{shared_node.kafka}"]}}
sources:
  rows:
    connector: datagen
    topic: kill9.rows
    topic_config: {{partitions: 2}}
    rate_limit: {{events_per_second: 250, burst_size: 50}}
    config: {{kind: numbers, count: {ROWS}, rows_per_second: null}}
settings:
  state_dir: {state}
  health: {{enabled: false}}
  spark: {{master: "local[2]", driver_memory: 512m}}
"""
    )
    log = tmp_path / "connect.log"
    connect = Connect(file, state, log)
    try:
        connect.until(100)
        assert connect.kill_spark() == ExitCode.UNAVAILABLE
        assert "Spark has died" in log.read_text()
    finally:
        connect.kill9()
    connect = Connect(file, state, log)
    try:
        connect.until(100)
    finally:
        connect.kill9()
    assert len(records(shared_node.kafka, "kill9.rows")) < ROWS, "killed too late to show anything"
    connect = Connect(file, state, log)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(records(shared_node.kafka, "kill9.rows")) < ROWS:
            assert time.monotonic() < deadline, log.read_text()[-3_000:]
            time.sleep(0.5)
    finally:
        status = connect.stop()
    assert status == 0, log.read_text()[-3_000:]

    arrived = records(shared_node.kafka, "kill9.rows")
    numbers = [json.loads(record.value or b"")["number"] for record in arrived]
    assert Counter(numbers) == Counter(range(ROWS))
    by_partition: dict[int, list[int]] = {}
    for record, number in zip(arrived, numbers, strict=True):
        by_partition.setdefault(record.partition, []).append(number)
    assert all(each == sorted(each) for each in by_partition.values()), "order within a partition"
