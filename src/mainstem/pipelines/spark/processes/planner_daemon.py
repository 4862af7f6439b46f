"""The process from which Spark forks the Python processes that plan and commit: a small one.

Spark keeps one such daemon for each kind of request (list what to read, create writers, end a
batch), each with a single worker, for as long as Spark runs. Spark's own daemon loads all of
pyspark before it forks; with one worker each, that shares nothing, and the daemons of one pipeline
take a quarter of a gigabyte. This one loads nothing: its workers do.

    python -m mainstem.pipelines.spark.processes.planner_daemon \
        pyspark.sql.worker.plan_data_source_read

Workers for requests that Spark sends once per query *rest* after a while without requests: the same
process, on the same socket, is replaced by a new Python with nothing loaded.

Guarantee: towards Spark it behaves as ``pyspark.daemon`` does with sockets in the file system; if
Spark uses other sockets, ``pyspark.daemon`` itself runs. Workers are pyspark's own.
"""

import gc
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import IO, Final, NoReturn

from mainstem.pipelines.spark.processes.worker_daemon import prefer_installed

_ON_FILES: Final = "PYTHON_UNIX_DOMAIN_ENABLED"
_FOLDER: Final = "PYTHON_WORKER_FACTORY_SOCK_DIR"
_REUSE: Final = "SPARK_REUSE_WORKER"
_INT: Final = struct.Struct(">i")
_STDIN: Final = 0
_FORK_PAUSE_S: Final = 1.0
_WAITING_MAX: Final = 1024
# Spark sends this request once per session, and would keep the worker for a minute.
_ONCE: Final = "pyspark.sql.worker.lookup_data_sources"
# Sent when a query starts; the worker takes 50 MB and would stay for a minute.
_SELDOM: Final = frozenset(
    {
        "pyspark.sql.worker.create_data_source",
        "pyspark.sql.worker.plan_data_source_read",
    }
)
_SELDOM_WAIT_S: Final = 3.0
_RESTING: Final = "--resting"


def main() -> None:
    """Serve until Spark closes the standard input; or continue as a worker that has rested."""
    if sys.argv[1:2] == [_RESTING]:
        caller = socket.socket(fileno=int(sys.argv[2]))
        del sys.argv[1:3]
        _has_called(caller, None)
        _work(caller)
    if os.environ.get(_ON_FILES, "false").lower() != "true":
        prefer_installed()
        from pyspark.daemon import manager

        manager()
        return
    PlannerDaemon(Path(os.environ[_FOLDER])).run()


class PlannerDaemon:
    """Listens, forks, and kills workers that Spark gives up."""

    def __init__(self, folder: Path) -> None:
        os.setpgid(0, 0)  # so that a signal to the group reaches all workers and no other process
        self._path = folder / f".{os.urandom(16).hex()}.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen(_WAITING_MAX)

    def run(self) -> NoReturn:
        """Reports the socket's path to Spark, and serves."""
        signal.signal(signal.SIGTERM, self._on_terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        place = os.fsencode(self._path)
        os.write(sys.stdout.fileno(), _INT.pack(len(place)) + place)
        code = 1
        try:
            while self._round():
                pass
            code = 0
        finally:
            self._end(code)

    def _round(self) -> bool:
        """Waits for Spark; False when it has closed the input."""
        calls = self._listener.fileno()
        ready, _, _ = select.select([_STDIN, calls], [], [])
        if _STDIN in ready:
            data = os.read(_STDIN, _INT.size)
            if not data:
                return False
            _kill(_INT.unpack(data)[0])
        if calls in ready:
            caller, _ = self._listener.accept()
            if self._forked(caller) == 0:
                self._listener.close()
                _introduce(caller)
                _work(caller)
            caller.close()
        return True

    def _forked(self, caller: socket.socket) -> int:
        """The id of the new process; 0 in the child, -1 if the fork failed."""
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(_FORK_PAUSE_S)
            return os.fork()
        except OSError as error:
            # An errno instead of a process id reports the failure to Spark.
            caller.sendall(_INT.pack(error.errno or 1))
            return -1

    def _on_terminate(self, number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        self._end(1)

    def _end(self, code: int) -> NoReturn:
        self._path.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(0, signal.SIGHUP)
        sys.exit(code)


def _kill(worker: int) -> None:
    try:
        os.kill(worker, signal.SIGKILL)
    except ProcessLookupError:
        return  # it had already ended


def _introduce(caller: socket.socket) -> None:
    """Reports this worker's process id to Spark."""
    # First, so that the daemon's final signal takes effect while pyspark is still being loaded.
    for number in (signal.SIGHUP, signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    # Child processes of the work get an empty input instead of the daemon's pipe from Spark.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, _STDIN)
    os.close(nothing)
    caller.sendall(_INT.pack(os.getpid()))


def _work(caller: socket.socket) -> NoReturn:
    """Runs a worker; pyspark and the module of the work are loaded here."""
    code = 1
    try:
        prefer_installed()
        _hold_back()
        from pyspark.daemon import worker

        if sys.argv[1:2] == [_ONCE]:
            _answer_once()
        while (failed := worker(caller, True)) == 0 and os.environ.get(_REUSE):  # noqa: FBT003
            gc.collect()
            if _SELDOM.issuperset(sys.argv[1:2]) and not _has_called(caller, _SELDOM_WAIT_S):
                _rest(caller)
        _wait_for_close(caller)
        code = failed
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        # Skips the daemon's exit handlers.
        os._exit(code)


def _has_called(caller: socket.socket, wait_s: float | None) -> bool:
    """Waits until Spark sends a request or closes the socket."""
    return bool(select.select([caller], [], [], wait_s)[0])


def _rest(caller: socket.socket) -> NoReturn:
    """Replaces this process by a Python with nothing loaded that waits for the next request."""
    place = caller.detach()
    os.set_inheritable(place, True)  # noqa: FBT003
    module = "mainstem.pipelines.spark.processes.planner_daemon"
    os.execv(sys.executable, [sys.executable, "-m", module, _RESTING, str(place), *sys.argv[1:]])  # noqa: S606


def _hold_back() -> None:
    from mainstem.pipelines.spark.processes.deferred_arrow import defer_arrow_import

    defer_arrow_import()


def _answer_once() -> None:
    """Makes the worker report, after its result, that it cannot be reused."""
    from pyspark.serializers import SpecialLengths
    from pyspark.sql.worker import utils

    def read_the_end(stream: IO[bytes]) -> int:
        stream.read(_INT.size)
        return int(SpecialLengths.END_OF_DATA_SECTION)

    # On anything else than the end of the stream, pyspark's worker reports that and exits.
    vars(utils)["read_int"] = read_the_end


def _wait_for_close(caller: socket.socket) -> None:
    try:
        while caller.recv(1024):
            pass
    except OSError:
        return


if __name__ == "__main__":
    main()
