"""Making appends durable, many at a time: one round of syncs in flight, no timer.

A round starts as soon as a sync is requested and none is running; later requests join
the next one. So a single append waits for one sync, and under load every sync serves all appends
that came while the one before it ran.

A round with few dirty logs syncs their files on a few threads; one with many asks the kernel to
sync the whole file system, which costs about the same however many files are dirty (the figures are
in ``docs/decisions/0003-group-commit.md``). A failed sync is fatal: the kernel may have dropped the
bytes and would report success next time, so nothing is retried and nothing more is acknowledged.
Only if the process has no free descriptor to open a path with, nothing was asked of the disk:
that sync is tried again.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import NamedTuple

from mainstem.log.disk.file_access import FileAccess
from mainstem.log.disk.sync_job import SyncJob, carry_out
from mainstem.log.range_log import RangeLog, take_back
from mainstem.model.errors import ErrorCode, Unavailable
from mainstem.model.file_errors import is_descriptor_shortage

THREADS = 4
# Above this many dirty logs one sync of the file system is cheaper than one per file.
WHOLE_FILE_SYSTEM_ABOVE = 64
RETRY_S = 0.05

Done = Callable[[], None]


class _Request(NamedTuple):
    log: RangeLog
    job: SyncJob
    dones: list[Done]


class _Failure(NamedTuple):
    request: _Request
    error: OSError


class GroupCommit:
    """Syncs on threads, answers on the loop; all its logs are on one file system."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_fatal: Callable[[OSError], None],
        access: FileAccess | None = None,
        *,
        threads: int = THREADS,
        on_round: Callable[[float], None] | None = None,
    ) -> None:
        self._loop = loop
        self._on_fatal = on_fatal
        self._on_round = on_round  # called with the duration of each round in seconds
        self._round_began = 0.0
        self._access = access or FileAccess()
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="log-sync")
        self._waiting: dict[RangeLog, list[Done]] = {}
        self._round: list[_Request] = []
        self._pieces_left = 0
        self._failures: list[_Failure] = []
        self._failed: OSError | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._idle_waiters: list[asyncio.Future[None]] = []
        self.rounds = 0

    @property
    def busy(self) -> bool:
        """Whether a round is in flight, or about to be repeated."""
        return self._pieces_left > 0 or self._retry is not None

    def request(self, log: RangeLog, done: Done | None = None) -> None:
        """Make everything written to a log until now durable; ``done`` is called afterwards."""
        if self._failed is not None:
            raise Unavailable(ErrorCode.STORAGE_FAILED, f"a sync has failed: {self._failed}")
        dones = self._waiting.get(log)
        if dones is None:
            dones = self._waiting[log] = []
        if done is not None:
            dones.append(done)
        if not self.busy:
            self._start_round()

    async def drain(self) -> None:
        """Wait until everything requested is durable, or a sync has failed."""
        while self.busy and self._failed is None:
            waiter = self._loop.create_future()
            self._idle_waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """End the threads; what is in flight is finished first."""
        self._pool.shutdown(wait=True)

    def _start_round(self) -> None:
        self._retry = None
        waiting, self._waiting = self._waiting, {}
        for log, dones in waiting.items():
            if log.closed:
                _notify(dones)
        self._round = [
            _Request(log, log.begin_sync(), dones)
            for log, dones in waiting.items()
            if not log.closed
        ]
        self.rounds += 1
        self._round_began = perf_counter()
        pieces = self._pieces()
        self._pieces_left = len(pieces)
        for piece in pieces:
            future = self._loop.run_in_executor(self._pool, partial(_sync, piece, self._access))
            future.add_done_callback(self._piece_done)

    def _pieces(self) -> list[list[_Request]]:
        count = 1 if len(self._round) > WHOLE_FILE_SYSTEM_ABOVE else self._threads
        pieces = [self._round[place::count] for place in range(count)]
        return [piece for piece in pieces if piece] or [[]]

    def _piece_done(self, future: asyncio.Future[list[_Failure]]) -> None:
        self._failures += future.result()
        self._pieces_left -= 1
        if self._pieces_left:
            return
        if self._on_round is not None:
            self._on_round(perf_counter() - self._round_began)
        finished, self._round = self._round, []
        # Files of a range that was dropped meanwhile need no sync.
        failures = [failure for failure in self._failures if not failure.request.log.discarded]
        self._failures = []
        final = next((each.error for each in failures if not _is_repeatable(each)), None)
        if final is not None:
            self._failed = final
            self._wake_idle()
            self._on_fatal(final)
            return
        if failures:
            self._repeat([failure.request for failure in failures])
        elif self._waiting:  # the next sync runs while this one is answered
            self._start_round()
        repeated = {id(failure.request) for failure in failures}
        for request in finished:
            if id(request) not in repeated:
                _answer(request)
        if not self.busy:
            self._wake_idle()

    def _repeat(self, requests: list[_Request]) -> None:
        """No descriptor was free for these: they join the next round, which starts a bit later."""
        for request in requests:
            take_back(request.log, request.job)
            self._waiting.setdefault(request.log, [])[:0] = request.dones
        self._retry = self._loop.call_later(RETRY_S, self._start_round)

    def _wake_idle(self) -> None:
        waiters, self._idle_waiters = self._idle_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _is_repeatable(failure: _Failure) -> bool:
    return is_descriptor_shortage(failure.error)


def _answer(request: _Request) -> None:
    log = request.log
    if not log.discarded:
        log.finish_sync(request.job)
        for listener in tuple(log.sync_listeners):  # a listener may remove itself
            listener(log)
    _notify(request.dones)


def _notify(dones: list[Done]) -> None:
    """Waiting callers find the log durable, or closed."""
    for done in dones:
        done()


def _sync(piece: list[_Request], access: FileAccess) -> list[_Failure]:
    """Runs on a thread."""
    if len(piece) > WHOLE_FILE_SYSTEM_ABOVE:
        with_file = next((request for request in piece if request.job.files), None)
        if with_file is not None:
            try:
                access.sync_file_system(with_file.job.files[0].fd)
            except OSError as error:
                access.sync_failed()
                return [_Failure(with_file, error)]
            return []
    failures = []
    for request in piece:
        try:
            carry_out(request.job, access)
        except OSError as error:
            failures.append(_Failure(request, error))
    return failures
