"""The interface by which a session runs asynchronous work without depending on the event loop.

Sessions are pure: they pass coroutines and timers to a ``Runner`` and are called back. On a node
this is ``loop_driver.LoopRunner``, in unit tests a runner that runs everything at once.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

Done = Callable[[Any, BaseException | None], None]  # the result, or None and the error
Stop = Callable[[], object]


class Runner(Protocol):
    """Runs work for sessions, now and later."""

    def run(self, work: Awaitable[Any], done: Done) -> Stop:
        """Run ``work``, then call ``done``; returns a function that cancels both.

        Sessions do not cancel work that must continue after the connection has ended.
        """
        ...

    def soon(self, call: Callable[[], None]) -> object:
        """Call back once the current callback has returned."""
        ...

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        """Call back after a delay."""
        ...
