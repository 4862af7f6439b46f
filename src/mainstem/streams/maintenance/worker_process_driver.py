"""A process for work on files that would block the node's loop: compaction, joining ranges.

The node continues while the process reads: a stream is handed over, trimmed or deleted, and its
files are deleted. Guarantees: a missing file ends that job, not the node; a failing disk stops the
node; a partition whose ranges are rewritten here copies none from another node meanwhile.
"""

import asyncio
import multiprocessing
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from mainstem.log.cleaning.worker_exit import end_with_parent
from mainstem.log.disk.file_access import storage_error
from mainstem.log.range_log import RangeLog
from mainstem.log.store import LogStore
from mainstem.model.errors import STORAGE_RECOVERS, Corrupt, MainstemError
from mainstem.streams.service import StreamService
from mainstem.streams.writer.stream_driver import StreamWriter
from mainstem.telemetry import logs

log = logs.logger("streams")

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")


class FileWorkerProcess:
    """One process, started when there is work and stopped when there is none."""

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


class PeriodicStreamTask(ABC):
    """Walks all streams periodically and processes those that are due, one at a time.

    A failure is logged: the next round tries again.
    """

    def __init__(self, streams: StreamService, store: LogStore, complaint: str) -> None:
        self._streams = streams
        self._store = store
        self._complaint = complaint
        self._worker = FileWorkerProcess()

    async def run(self, interval_ms: int) -> None:
        """Look for work periodically, without end."""
        try:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                await self.run_once()
        finally:
            self._worker.dismiss()

    async def run_once(self) -> int:
        """Process every stream that is due; how many had work."""
        count = 0
        for stream in self._streams.table.all():
            if stream.closed is None and self._is_due(stream):
                try:
                    count += await self._maintain(stream)
                except (MainstemError, OSError, BrokenProcessPool) as error:
                    log.warning("%s %s: %s", _name(stream), self._complaint, error)
                    self._worker.dismiss()
        self._worker.dismiss()
        return count

    async def _work_on(
        self,
        stream: StreamWriter,
        sources: Sequence[RangeLog],
        work: Callable[[JobT], ResultT],
        job: JobT,
    ) -> ResultT | None:
        """Carry out ``work(job)`` on the files of sealed ranges.

        None: they are no longer here, or another task works on them.

        Raises:
            Corrupt: a source is damaged, or files of it are missing.
            Unavailable: there is no space left.
        """
        partition = sources[0].directory.parent
        store = self._store
        if partition in store.rewriting or any(one.parent == partition for one in store.copying):
            return None
        if not store.files.space.has_space_for(sum(held.size_bytes for held in sources)):
            raise store.files.space.refusal(_name(stream))
        firsts = [held.first_offset for held in sources]
        store.rewriting.add(partition)
        try:
            return await self._worker.run(work, job)
        except (FileNotFoundError, MainstemError) as error:
            if stream.closed is not None or any(
                held not in stream.ranges or held.first_offset != first
                for held, first in zip(sources, firsts, strict=True)
            ):
                log.info("%s %s: its files were deleted meanwhile", _name(stream), self._complaint)
                return None
            if isinstance(error, FileNotFoundError):
                raise Corrupt("a file is missing", subject=str(error.filename)) from error
            raise
        except OSError as error:
            failure = storage_error(error, sources[0].directory)
            if failure.code in STORAGE_RECOVERS:
                raise failure from error
            raise
        finally:
            store.rewriting.discard(partition)

    @abstractmethod
    def _is_due(self, stream: StreamWriter) -> bool:
        """Whether to process the stream at all."""

    @abstractmethod
    async def _maintain(self, stream: StreamWriter) -> bool:
        """Do the work; whether there was any."""


def _name(stream: StreamWriter) -> str:
    return f"{stream.topic}-{stream.id.partition}"
