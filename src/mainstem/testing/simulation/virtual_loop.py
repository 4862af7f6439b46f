"""An event loop whose time jumps to the next timer, for tests of drivers.

The loop waits for nothing outside the process, so sockets and threads do not work with it. It is
small because simulations spend their time in it: one heap of timers, one queue of calls, no
selector. Timers of the same time run in the order in which they were set.

Calls belong to the process that their context names (``PROCESS``), so that several processes can
be simulated in one loop and any of them can be paused: its calls wait while time passes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Final, TypeVarTuple

import msgspec

Ts = TypeVarTuple("Ts")

NO_PROCESS: Final = 0
PROCESS: Final = ContextVar("PROCESS", default=NO_PROCESS)


class Call(msgspec.Struct, order=True):
    """A scheduled call: an ``asyncio.TimerHandle`` that no Python code creates or compares."""

    due_s: float
    number: int  # timers of the same time run in order
    callback: Callable[..., object] | None  # None: cancelled
    args: tuple[object, ...]
    context: Context

    def cancel(self) -> None:
        """Cancel the call and release its references."""
        self.callback = None
        self.args = ()

    def cancelled(self) -> bool:
        """Whether the call was cancelled."""
        return self.callback is None

    def when(self) -> float:
        """The time at which it is due."""
        return self.due_s


class VirtualLoop(asyncio.BaseEventLoop):
    """``asyncio.Runner(loop_factory=VirtualLoop)`` runs a scenario without waiting for it."""

    # Every future calls it; a built-in that returns False costs less than a method.
    get_debug = staticmethod(bool)

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._due: list[Call] = []
        self._calls: deque[Call] = deque()
        self._number = 0
        self._paused: dict[int, list[Call]] = {}

    def time(self) -> float:
        """Virtual seconds since the loop was created."""
        return self.now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> Call:
        """Schedule a call for the next iteration."""
        call = Call(0.0, 0, callback, args, copy_context() if context is None else context)
        self._calls.append(call)
        return call

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Call:
        """Schedule a call after that many seconds."""
        # Like ``call_at``, which would cost another call and a copy of the arguments.
        number = self._number = self._number + 1
        call = Call(
            self.now_s + delay,
            number,
            callback,
            args,
            copy_context() if context is None else context,
        )
        heappush(self._due, call)
        return call

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> Call:
        """Schedule a call at that time."""
        number = self._number = self._number + 1
        call = Call(when, number, callback, args, copy_context() if context is None else context)
        heappush(self._due, call)
        return call

    def pause(self, process: int) -> None:
        """Run no calls of a process until it is resumed."""
        self._paused.setdefault(process, [])

    def resume(self, process: int) -> None:
        """Run the calls that a paused process has missed, in order, and continue."""
        self._calls.extend(self._paused.pop(process, ()))

    def is_paused(self, process: int) -> bool:
        """Whether a process is paused."""
        return process in self._paused

    def _is_kept(self, call: Call) -> bool:
        """Whether a call waits because its process is paused."""
        waiting = self._paused.get(call.context.get(PROCESS, NO_PROCESS))
        if waiting is not None:
            waiting.append(call)
        return waiting is not None

    def _run_once(self) -> None:
        """Run until the loop is stopped."""
        due, calls, paused = self._due, self._calls, self._paused
        while not self._stopping:  # type: ignore[attr-defined]
            if not calls:
                while due and due[0].callback is None:
                    heappop(due)
                assert due, "deadlock: all tasks wait and no timer is set"
                self.now_s = max(self.now_s, due[0].due_s)
            now_s = self.now_s
            while due and due[0].due_s <= now_s:
                calls.append(heappop(due))
            for _ in range(len(calls)):
                call = calls.popleft()
                callback = call.callback
                if callback is None or (paused and self._is_kept(call)):
                    continue
                try:
                    call.context.run(callback, *call.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as any event loop does
                    self.call_exception_handler(
                        {"message": f"Exception in {callback!r}", "exception": error}
                    )
