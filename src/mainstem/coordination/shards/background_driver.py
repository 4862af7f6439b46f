"""Work that goes on by itself beside requests, until the coordinator stops."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class BackgroundTasks:
    """What a coordinator does besides answering; ``name`` says for which topic."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: dict[asyncio.Task[None], None] = {}  # in their order

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let ``work`` go on by itself until it ends or the coordinator stops."""
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
            # Our bug: the node's handler decides what becomes of a node without its coordinator.
            task.get_loop().call_exception_handler(
                {
                    "message": f"coordination of {self._name} failed",
                    "exception": error,
                    "task": task,
                }
            )
