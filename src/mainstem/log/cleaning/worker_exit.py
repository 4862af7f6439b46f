"""Ends a worker process together with its node, however the node ends.

A worker that outlived a killed node would write into the files of the next one.
"""

import multiprocessing
import os
import threading


def end_with_parent() -> None:
    """To be called once in the worker; a thread waits for the end of the node."""
    threading.Thread(target=_wait, name="parent-watch", daemon=True).start()


def _wait() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "a process that another one started"
    parent.join()
    os._exit(1)
