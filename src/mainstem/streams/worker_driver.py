"""A process for work on files that would hold the node's loop up: compaction, joining ranges."""

import asyncio
import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from mainstem.log.with_parent import end_with_parent
from mainstem.model.errors import MainstemError
from mainstem.streams.service import StreamService
from mainstem.streams.writer_driver import StreamWriter
from mainstem.telemetry import logs

log = logs.logger("streams")

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


class FileWorker:
    """One process, started when there is work and sent away when there is none."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def run(self, work: Callable[[JobT], ResultT], job: JobT) -> ResultT:
        """Carry out ``work(job)`` in the process; both must be picklable."""
        if self._pool is None:
            # Spawned, not forked: a fork would copy the loop, its sockets and its locks.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, context, initializer=end_with_parent)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, job)

    def dismiss(self) -> None:
        """End the process; an idle one costs more memory than its start costs time."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


class StreamRounds(ABC):
    """Goes round all streams now and then and tends those that are due, one at a time.

    What fails is said and left as it is: the next round tries again.
    """

    def __init__(self, streams: StreamService, complaint: str) -> None:
        self._streams = streams
        self._complaint = complaint
        self._worker = FileWorker()

    async def run(self, interval_ms: int) -> None:
        """Look for work now and then, for ever."""
        try:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                await self.run_once()
        finally:
            self._worker.dismiss()

    async def run_once(self) -> int:
        """Tend every stream that is due; how many had work."""
        count = 0
        for stream in self._streams.all():
            if stream.closed is None and self._is_due(stream):
                try:
                    count += await self._tend(stream)
                except (MainstemError, BrokenProcessPool) as error:
                    name = f"{stream.topic}-{stream.id.partition}"
                    log.warning("%s %s: %s", name, self._complaint, error)
                    self._worker.dismiss()
        self._worker.dismiss()
        return count

    @abstractmethod
    def _is_due(self, stream: StreamWriter) -> bool:
        """Whether to look at the stream at all."""

    @abstractmethod
    async def _tend(self, stream: StreamWriter) -> bool:
        """Do the work; whether there was any."""
