"""The small daemon that Spark's planners are forked from, spoken to as Spark does."""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from mainstem.pipelines.spark.processes.python_shim import python_shim

WORKER = "pyspark.sql.worker.lookup_data_sources"
SMALL_KB = 25_000
EXCEPTION = -2
PATIENCE_S = 30.0


class Spark:
    """The Java side: starts the daemon, calls it, and tells it to end workers."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.process = subprocess.Popen(
            [str(python), "-m", "pyspark.daemon", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ
            | {
                "PYTHON_UNIX_DOMAIN_ENABLED": "true",
                "PYTHON_WORKER_FACTORY_SOCK_DIR": str(folder),
                "SPARK_REUSE_WORKER": "1",
            },
        )
        assert self.process.stdout is not None
        (length,) = struct.unpack(">i", self.process.stdout.read(4))
        self.place = self.process.stdout.read(length).decode()

    def call(self) -> tuple[socket.socket, int]:
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        caller.settimeout(PATIENCE_S)
        caller.connect(self.place)
        (worker,) = struct.unpack(">i", caller.recv(4))
        return caller, worker

    def give_up(self, worker: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(struct.pack(">i", worker))
        self.process.stdin.flush()

    def leave(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[Spark]:
    shim = python_shim({}, cache=tmp_path / "cache")
    assert shim is not None
    folder = Path(tempfile.mkdtemp(prefix="spark-"))  # the path of a socket has to be short
    running = Spark(shim, folder)
    assert running.process.stdout is not None
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        running.process.stdout.close()
        if running.process.stdin is not None:
            running.process.stdin.close()
        shutil.rmtree(folder)


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def resident_kb(process: int) -> int:
    return int(Path(f"/proc/{process}/status").read_text().partition("VmRSS:")[2].split()[0])


def ends(process: int) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while is_alive(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not is_alive(process)


def test_the_daemon_is_small_and_each_call_gets_a_process(spark: Spark) -> None:
    first, one = spark.call()
    second, other = spark.call()
    assert len({spark.process.pid, one, other}) == 3
    assert resident_kb(spark.process.pid) < SMALL_KB
    first.close()
    second.close()


def test_a_worker_that_rests_is_small_and_answers_when_it_is_asked() -> None:
    ours, theirs = socket.socketpair()
    module = "mainstem.pipelines.spark.processes.planner_daemon"
    worker = subprocess.Popen(
        [sys.executable, "-m", module, "--resting", str(theirs.fileno()), WORKER],
        pass_fds=[theirs.fileno()],
        stderr=subprocess.DEVNULL,
    )
    theirs.close()
    with ours:
        assert resident_kb(worker.pid) < SMALL_KB
        ours.settimeout(PATIENCE_S)
        ours.sendall(struct.pack(">i", 3) + b"0.1")  # a version of Python that nobody has
        assert struct.unpack(">i", ours.recv(4)) == (EXCEPTION,)
    assert worker.wait(PATIENCE_S) != 0


def test_a_worker_that_spark_gives_up_is_ended_and_others_stay(spark: Spark) -> None:
    first, one = spark.call()
    second, other = spark.call()
    spark.give_up(one)
    assert ends(one)
    assert is_alive(other)
    first.close()
    second.close()


def test_all_is_gone_when_spark_leaves(spark: Spark) -> None:
    caller, worker = spark.call()
    assert spark.leave() == 0
    assert ends(worker)
    assert not Path(spark.place).exists()
    caller.close()


def test_all_is_gone_when_the_daemon_is_told_to_end(spark: Spark) -> None:
    caller, worker = spark.call()
    os.kill(spark.process.pid, signal.SIGTERM)
    assert spark.process.wait(PATIENCE_S) == 1
    assert ends(worker)
    caller.close()


def test_python_is_python_for_everything_else(tmp_path: Path) -> None:
    shim = python_shim({}, cache=tmp_path)
    assert shim is not None
    told = subprocess.run(
        [str(shim), "-c", "import sys; print(sys.executable, sys.argv[1])", "a  b"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == f"{sys.executable} a  b\n"


def test_sparks_archives_are_left_out_of_the_path_and_all_else_is_kept(tmp_path: Path) -> None:
    shim = python_shim({}, cache=tmp_path)
    spec = find_spec("pyspark")
    assert shim is not None
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    archives = [home / "python" / "lib" / "pyspark.zip", home / "jars" / "spark-core_2.13.jar"]
    others = [tmp_path / "pyspark.zip", tmp_path / "a  b"]
    given = os.pathsep.join(map(str, [archives[0], others[0], archives[1], others[1]]))
    told = subprocess.run(
        [str(shim), "-c", "import os; print(os.environ['PYTHONPATH'])"],
        env=os.environ | {"PYTHONPATH": given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip().split(os.pathsep) == [str(each) for each in others]


def test_where_nothing_can_be_written_there_is_no_stand_in(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert python_shim({}, cache=tmp_path / "file") is None
