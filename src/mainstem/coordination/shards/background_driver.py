"""Background tasks of a coordinator, which run until it stops."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """Runs the background tasks of the coordinator of the topic ``name``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[None], None] = {}  # in the order in which they were started

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` in the background until it ends or the coordinator stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def stop(self) -> None:
        """Stop all background tasks."""
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: the node's exception handler decides how to go on without this coordinator.
            task.get_loop().call_exception_handler(
                {
                    "message": f"coordination of {self._name} failed",
                    "exception": error,
                    "task": task,
                }
            )
