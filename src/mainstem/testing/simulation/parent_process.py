"""Ends a process that runs scenarios when its parent process has ended.

Detected by a pipe: only the parent holds the write end, so that it is closed however the parent
ended, even by ``SIGKILL``. That is portable, unlike Linux' ``PR_SET_PDEATHSIG``.
"""

import os
import signal
import time
from multiprocessing import parent_process
from multiprocessing.connection import wait
from threading import Thread
from typing import Final

# How long a scenario has to remove its files after it was interrupted.
GRACE_S: Final = 10.0


def end_with_pool() -> None:
    """In a worker of ``multiprocessing``: end when the parent of its pool has ended."""
    parent = parent_process()
    assert parent is not None, "a worker has a parent"
    end_with(parent.sentinel)


def end_with(pipe: int) -> None:
    """End this process when the write end of a pipe is closed."""
    Thread(target=_end_when_closed, args=(pipe,), daemon=True).start()


def _end_when_closed(pipe: int) -> None:
    wait([pipe])
    # An interrupt lets the scenario remove its files; a signal also ends a blocking call.
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(GRACE_S)
    os._exit(1)
