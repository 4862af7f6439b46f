"""Processes that run Spark's loads, and what they cost: a side is told what to do line by line.

Processor time is that of all processes below the side, ended ones included: Java and the Python
workers; the node and the database are not part of it. Memory is watched while a load runs.
"""

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Self

import psutil
from bench.figures import Figure

MEGABYTE = 1e6
WATCH_S = 2.0


class Memory:
    """The most that a process and all that it has started were seen to hold.

    ``rss_max_mb`` counts what processes share for each of them, as the kernel adds up;
    ``pss_max_mb`` counts it once.
    """

    def __init__(self) -> None:
        self.rss_max_mb = 0.0
        self.pss_max_mb = 0.0

    def look(self, pid: int) -> None:
        """Adds up what they hold now."""
        pss = rss = 0
        for process in family(pid):
            with contextlib.suppress(psutil.Error):
                memory = process.memory_full_info()
                pss += memory.pss
                rss += memory.rss
        self.pss_max_mb = max(self.pss_max_mb, pss / MEGABYTE)
        self.rss_max_mb = max(self.rss_max_mb, rss / MEGABYTE)


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    with contextlib.suppress(psutil.Error):
        own = psutil.Process(pid)
        return [own, *own.children(recursive=True)]
    return []


class SparkSide:
    """A process with its title in the table.

    Args:
        title: name and promise.
        command: how it is started; it answers a first line when it is ready.
        log: where its complaints go.
        watched: whether its memory is of interest.
    """

    def __init__(
        self, title: str, command: Sequence[str], log: Path, *, watched: bool = False
    ) -> None:
        self.title = title
        self._command = command
        self._log = log
        self._watched = watched
        self.memory = Memory()

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        if self._watched:
            self._watcher.start()
        try:
            self._answer()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self._stopping.set()
        if self._watched:
            self._watcher.join()
        self._pipe(self._process.stdin).close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, load: str, *given: object) -> dict[str, Any]:
        """Has a load run to its end."""
        pipe = self._pipe(self._process.stdin)
        pipe.write(json.dumps([load, *given]) + "\n")
        pipe.flush()
        return self._answer()

    def cost(self, rows: int, load: str, *given: object) -> Figure:
        """Rows per second of one core, and by the clock on the wall, of a load."""
        cpu_before, began = self._cpu_s(), time.perf_counter()
        self.ask(load, *given)
        wall_s, cpu_s = time.perf_counter() - began, self._cpu_s() - cpu_before
        return Figure(rows / cpu_s, {"rate": rows / wall_s})

    def _answer(self) -> dict[str, Any]:
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError(f"{self.title} has ended: {self._log.read_text()[-3_000:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def _cpu_s(self) -> float:
        total = 0.0
        for process in family(self._process.pid):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        return total

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_S):
            self.memory.look(self._process.pid)
