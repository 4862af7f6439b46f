"""A transactional client in a process of its own, to be killed, stopped and woken again.

Promises: SIGTERM ends the process after its transaction; a fenced process ends with status
``FENCED_STATUS`` at once.
"""

import signal

FENCED_STATUS = 10
TRANSACTION_TIMEOUT_MS = 8_000
ABORT_SHARE = 0.15


class Gone(Exception):
    """The client cannot go on: somebody else has its transactional id."""


class Unfinished(Exception):
    """The transaction has to be aborted."""


class Ending:
    """Whether the process was asked to end."""

    def __init__(self) -> None:
        self.wanted = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.wanted = True
