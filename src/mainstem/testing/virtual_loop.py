"""An event loop whose time jumps to the next timer instead of passing: for drivers under test.

Nothing that comes from outside the process is waited for, so sockets and threads do not fit here.
The loop is small because simulations spend their time in it: one heap of timers, one queue of
calls, no selector. Timers of the same moment run in the order in which they were set.

Calls belong to the process that their context names (``PROCESS``), so that several processes can
be simulated in one loop and any of them can be paused: its calls wait while time goes on.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from typing import Final, TypeVarTuple

Ts = TypeVarTuple("Ts")

NO_PROCESS: Final = 0
PROCESS: Final = ContextVar("PROCESS", default=NO_PROCESS)


class _Call(asyncio.TimerHandle):
    """A call that is due: what ``asyncio.Handle`` is, without its bookkeeping."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False

    def cancel(self) -> None:
        """Do not run it; what it refers to can go."""
        self._cancelled = True
        self._callback = None  # type: ignore[assignment]
        self._args = ()

    def __repr__(self) -> str:
        return f"<call of {self._callback} at {self._when}>"


class VirtualLoop(asyncio.BaseEventLoop):
    """``asyncio.Runner(loop_factory=VirtualLoop)`` runs a story without waiting for it."""

    # Every future asks; a built-in that answers False costs less than a method.
    get_debug = staticmethod(bool)

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self._due: list[tuple[float, int, _Call]] = []
        self._calls: deque[_Call] = deque()
        self._number = 0
        self._paused: dict[int, list[_Call]] = {}

    def time(self) -> float:
        """Seconds since the loop was made, as far as timers are concerned."""
        return self.now_s

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it in the next round."""
        call = _Call(0.0, callback, args, copy_context() if context is None else context)
        self._calls.append(call)
        return call

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it after so many seconds."""
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it at that time."""
        call = _Call(when, callback, args, copy_context() if context is None else context)
        self._number += 1
        heappush(self._due, (when, self._number, call))
        return call

    def pause(self, process: int) -> None:
        """Make no calls of a process until it is resumed."""
        self._paused.setdefault(process, [])

    def resume(self, process: int) -> None:
        """Make the calls that a paused process has missed, in their order, and go on."""
        self._calls.extend(self._paused.pop(process, ()))

    def is_paused(self, process: int) -> bool:
        """Whether a process does not run."""
        return process in self._paused

    def _is_kept(self, call: _Call) -> bool:
        """Whether a call waits because its process is paused."""
        waiting = self._paused.get(call._context.get(PROCESS, NO_PROCESS))
        if waiting is not None:
            waiting.append(call)
        return waiting is not None

    def _run_once(self) -> None:
        """Run until somebody stops the loop."""
        due, calls = self._due, self._calls
        while not self._stopping:  # type: ignore[attr-defined]
            if not calls:
                while due and due[0][2]._cancelled:
                    heappop(due)
                assert due, "everything waits and nothing will ever happen"
                self.now_s = max(self.now_s, due[0][0])
            while due and due[0][0] <= self.now_s:
                calls.append(heappop(due)[2])
            for _ in range(len(calls)):
                call = calls.popleft()
                if call._cancelled or (self._paused and self._is_kept(call)):
                    continue
                try:
                    call._context.run(call._callback, *call._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as any event loop does
                    self.call_exception_handler(
                        {"message": f"Exception in {call!r}", "exception": error}
                    )
