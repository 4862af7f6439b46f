"""An event loop in a thread of its own, where the blocking clients of a program do their work.

One thread serves all of them, so a consumer's offsets can become part of a producer's transaction;
it starts with the first client and ends with the last. Keep-alive, heartbeats and reconnects
continue while the program works. May be used from any thread.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Final, TypeVar

from mainstem.model.errors import ErrorCode, InvalidRequest

Result = TypeVar("Result")
JOIN_TIMEOUT_S: Final = 10.0


class LoopThread:
    """Runs the event loop of a program's blocking clients in one thread."""

    _shared: ClassVar["LoopThread | None"] = None
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="mainstem-client", daemon=True)
        self._users = 0
        self._thread.start()

    @classmethod
    def lent(cls) -> "LoopThread":
        """The shared thread of the process; release it with ``give_back``."""
        with LoopThread._lock:
            if LoopThread._shared is None:
                LoopThread._shared = LoopThread()
            LoopThread._shared._users += 1
            return LoopThread._shared

    def give_back(self) -> None:
        """Releases the thread; the last user ends the loop and its thread."""
        with LoopThread._lock:
            self._users -= 1
            if self._users > 0:
                return
            if LoopThread._shared is self:
                LoopThread._shared = None
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not threading.current_thread():
            self._thread.join(JOIN_TIMEOUT_S)

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine in the loop and waits for its result."""
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidRequest(
                ErrorCode.INVALID_REQUEST,
                "a blocking client cannot wait in its own loop",
                remedy="use the asyncio client there",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def run(self, call: Callable[[], Result]) -> Result:
        """Runs a non-blocking call in the loop and returns its result."""

        async def in_turn() -> Result:
            return call()

        return self.call(in_turn())

    def soon(self, call: Callable[[], None]) -> None:
        """Schedules a call in the loop without waiting for it."""
        self._loop.call_soon_threadsafe(call)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    @classmethod
    def forget(cls) -> None:
        """Resets the state in a forked child, which does not have its parent's thread."""
        LoopThread._shared = None
        LoopThread._lock = threading.Lock()


os.register_at_fork(after_in_child=LoopThread.forget)
