"""Runs the work of sessions as tasks of the node's event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from mainstem.protocols.runner import Done, Stop

log = logging.getLogger(__name__)


class LoopRunner:
    """The runner that all sessions of a listener share.

    Args:
        work_name: the name of the work in log messages ("an AMQP method").
        expected: errors that sessions handle themselves, which are not logged.
    """

    def __init__(self, work_name: str, expected: tuple[type[BaseException], ...] = ()) -> None:
        self._work_name = work_name
        self._expected = expected
        self._tasks: set[asyncio.Future[Any]] = set()  # the loop keeps only weak references
        self._loop = asyncio.get_running_loop()
        self.soon = self._loop.call_soon

    def run(self, work: Awaitable[Any], done: Done) -> Stop:
        """Run ``work`` as a task, then call ``done``; returns a function that cancels it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

        def finished(task: asyncio.Future[Any]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                return
            error = task.exception()
            if error is None:
                done(task.result(), None)
                return
            if not isinstance(error, self._expected):
                log.error("%s failed", self._work_name, exc_info=error)
            done(None, error)

        task.add_done_callback(finished)
        return task.cancel

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        """Call back after a delay."""
        return self._loop.call_later(delay_ms / 1000, call)
