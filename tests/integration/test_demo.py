"""``mainstem dev --demo``: the node serves at once, the demonstration follows, Ctrl-C ends both."""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest
from tests.integration.pipelines.stage import records

from mainstem.cli.development.demo import TEMPLATE
from mainstem.pipelines.file.loader import read_file

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

PATIENCE_S = 280.0
BIN = Path(sys.executable).parent
HIDE_SPARK = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
"""


class Dev:
    """A node with its demonstration, in a session of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.data = folder / "data"
        self._out = folder / "out.txt"
        ports = ("--kafka-port", "0", "--http-port", "0")
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(
                [BIN / "mainstem", "dev", "--demo", *ports, "-d", self.data],
                env=os.environ | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self, pattern: str) -> str:
        """Wait until something is printed."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, self.output())) is None:
            assert self._process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output() + self.log()
            time.sleep(0.05)
        return found[1]

    def output(self) -> str:
        return self._out.read_text()

    def log(self) -> str:
        log = self.data / "demo" / "pipelines.log"
        return log.read_text() if log.exists() else ""

    def rows(self) -> list[dict[str, object]]:
        files = list((self.data / "demo" / "orders").glob("*.parquet"))
        return ds.dataset(files).to_table().to_pylist() if files else []

    def family(self) -> list[psutil.Process]:
        """The process and everything that it has started."""
        node = psutil.Process(self._process.pid)
        return [node, *node.children(recursive=True)]

    def interrupt(self) -> int:
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE_S)

    def kill(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in self.family():
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self._process.wait()


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Dev]:
    started = Dev(tmp_path)
    yield started
    started.kill()


def test_orders_flow_are_counted_and_archived_until_ctrl_c(dev: Dev) -> None:
    kafka = dev.said(r"Kafka +(127\.0\.0\.1:\d+)\n")
    produced: list[str | Path] = [BIN / "mainstem", "produce", "greetings", "hello", "-b", kafka]
    subprocess.run(produced, timeout=60, check=True)  # while Spark is being started

    dev.said(r"\d\d:\d\d +\d+ orders +[\d,.]+ +(.*CH \d+)")
    deadline = time.monotonic() + PATIENCE_S
    while not (large := records(kafka, "orders-large")) or not dev.rows():
        assert time.monotonic() < deadline, dev.log()
        time.sleep(0.2)
    everyone = dev.family()
    assert any(each.name() == "java" for each in everyone)
    followed, lag, status = (
        subprocess.run(
            shlex.split(line), capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for line in re.findall(r"^  (\S*mainstem .*)$", dev.output(), re.MULTILINE)
        if re.search("consume orders |group lag|pipeline status", line)
    )
    assert followed.count("order_id") == 5
    assert re.search(r"^pipeline-archive +orders +0 ", lag, re.MULTILINE), lag
    assert re.findall(r"^(\S+) +running", status, re.MULTILINE) == [
        "sources.orders",
        "sources.orders-per-minute",
        "sinks.archive",
    ]

    assert dev.interrupt() == 0, dev.output()
    _, alive = psutil.wait_procs(everyone, timeout=10)
    assert not alive
    assert "Traceback" not in dev.output()
    assert "Stopping the pipelines" in dev.output()
    rows = dev.rows()
    assert {row["email"] for row in rows} == {"***"}
    numbers = [row["order_id"] for row in rows]
    assert len(set(numbers)) == len(numbers)
    assert all(b'"email":"***"' in (each.value or b"") for each in large)


def test_a_node_serves_on_where_spark_can_neither_be_found_nor_installed(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(HIDE_SPARK)
    missing = {"PYTHONPATH": str(hidden), "PIP_CONSTRAINT": str(tmp_path / "none.txt")}
    dev = Dev(tmp_path, missing)
    try:
        kafka = dev.said(r"Kafka +(127\.0\.0\.1:\d+)\n")
        dev.said(r"(Installing Spark)")
        dev.said(r"(The demonstration has ended; the node still runs)")
        dev.said(r"(Spark could not be installed: .*none\.txt)")
        dev.said(r"(--no-demo skips the demonstration)")
        subprocess.run(
            [BIN / "mainstem", "produce", "greetings", "hello", "-b", kafka], timeout=60, check=True
        )
        assert dev.interrupt() == 0, dev.output()
        assert "Traceback" not in dev.output()
    finally:
        dev.kill()


def test_the_file_of_the_demonstration_is_in_order_as_it_is_committed() -> None:
    assert len(read_file(TEMPLATE, {}).pipelines) == 3
