"""What sessions need of the world outside."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

Done = Callable[[Any, BaseException | None], None]


class Runner(Protocol):
    """Does for a session what takes time."""

    def run(self, work: Awaitable[Any], done: Done) -> None:
        """Carry ``work`` out, then tell ``done``."""
        ...

    def soon(self, call: Callable[[], None]) -> object:
        """Call back once the present work is done."""
        ...

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        """Call back after a while."""
        ...
