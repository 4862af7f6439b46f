"""A process for work on files that would hold the node's loop up: compaction, joining ranges."""

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

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
            self._pool = ProcessPoolExecutor(1, mp_context=context)
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, job)

    def dismiss(self) -> None:
        """End the process; an idle one costs more memory than its start costs time."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
