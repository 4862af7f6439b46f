"""How a session has work done that takes time, without knowing of the event loop.

Sessions are pure: they hand coroutines and timers to a ``Runner`` and are called back. On a node
that is ``loop_driver.LoopRunner``, in unit tests a runner that runs everything at once.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

Done = Callable[[Any, BaseException | None], None]  # the result, or None and the error
Stop = Callable[[], object]


class Runner(Protocol):
    """Runs work for sessions, now and later."""

    def run(self, work: Awaitable[Any], done: Done) -> Stop:
        """Run ``work``, then call ``done``; returns what cancels it, after which nothing is called.

        Sessions whose work must go on after its connection has ended do not cancel it.
        """
        ...

    def soon(self, call: Callable[[], None]) -> object:
        """Call back once the present work is done."""
        ...

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        """Call back after a delay."""
        ...
