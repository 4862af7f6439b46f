"""The process of one node of ``simulator``: its requests and pauses."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, TypeVar

from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.ids import NodeId
from mainstem.testing.simulation.virtual_loop import PROCESS, Call, VirtualLoop

T = TypeVar("T")


class ProcessCalls:
    """Runs requests in the context of one process; created inside the running loop."""

    def __init__(self, node: NodeId) -> None:
        self._node = node
        self.context = copy_context()
        self.context.run(PROCESS.set, node)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "pauses are simulated"
        self._loop = loop
        self._resuming: Call | None = None
        # In order of arrival, with the future of each caller.
        self._serving: dict[asyncio.Task[Any], asyncio.Future[None]] = {}

    async def call(self, request: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        """The answer to a request; after a timeout the request continues nevertheless."""

        async def answer() -> T:
            return await request()

        loop = self._loop
        task = loop.create_task(answer(), context=self.context)
        answered: asyncio.Future[None] = loop.create_future()
        self._serving[task] = answered
        task.add_done_callback(self._served)
        giving_up = loop.call_later(timeout_s, _release, answered)
        try:
            await answered
        finally:
            giving_up.cancel()
        if not task.done():
            raise TimeoutError
        if task.cancelled():
            raise Unavailable(ErrorCode.TIMED_OUT, f"node {self._node} is gone")
        return task.result()

    @property
    def is_paused(self) -> bool:
        """Whether the process is paused."""
        return self._loop.is_paused(self._node)

    def pause(self, seconds: float) -> None:
        """Pause the process for that many seconds."""
        self._loop.pause(self._node)
        if self._resuming is not None:
            self._resuming.cancel()
        self._resuming = self._loop.call_later(seconds, self.resume)

    def resume(self) -> None:
        """Resume the process."""
        if self._resuming is not None:
            self._resuming.cancel()
        self._loop.resume(self._node)

    def end(self) -> None:
        """End the process and all its requests."""
        self.resume()
        for task in list(self._serving):
            task.cancel()

    def _served(self, task: "asyncio.Task[Any]") -> None:
        _release(self._serving.pop(task))
        if not task.cancelled():
            task.exception()  # of a request that no caller waits for any longer


def _release(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)
