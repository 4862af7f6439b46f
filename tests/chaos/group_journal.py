"""What a member of a group did last, for the message of a run in which its group reads nothing.

librdkafka tells what it does about its group as lines for debugging; only those about coordinator,
membership and errors are kept, and only the last of them.
"""

import logging
import time
from collections import deque

LINES_MAX = 80
LINE_CHARACTERS_MAX = 300
# Said for every commit.
_FREQUENT = ("DUMP", "ASSIGNDONE", "COMMIT", "CGRPOP", "OFFSET", "CONSUME")


class GroupJournal(logging.Handler):
    """The last lines, each with its time (UTC, as in the logs of nodes)."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=LINES_MAX)
        self.logger = logging.getLogger(f"{__name__}.{id(self)}")
        self.logger.setLevel(logging.DEBUG)
        self.logger.propagate = False
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what librdkafka says, unless it says so all the time."""
        text = record.getMessage()
        if not text.startswith(_FREQUENT):
            self.note(text)

    def note(self, text: str) -> None:
        """Keep a line of the application's own."""
        now = time.time()
        at = time.strftime("%H:%M:%S", time.gmtime(now))
        self._lines.append(f"{at}.{int(now % 1 * 1000):03d} {text[:LINE_CHARACTERS_MAX]}")

    def text(self) -> str:
        """All that is kept, the oldest first."""
        return "\n".join(f"  {line}" for line in self._lines)
