"""A set of background tasks that end together with their owner."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskSet:
    """Holds references to running tasks, and cancels them all."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._failure: BaseException | None = None

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts work in the background."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def check(self) -> None:
        """Raises the unexpected error of a task, once, so that a bug does not stay unnoticed."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def close(self) -> None:
        """Cancels what still runs and waits for its end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()
