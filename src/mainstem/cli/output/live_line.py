"""A terminal line that is updated in place; without a terminal, some states as lines."""

import sys
import time
from typing import Final, TextIO

ERASE: Final = "\r\x1b[K"
LINE_EVERY_S: Final = 10.0  # without a terminal


class LiveLine:
    """Keeps the last state below all other output."""

    def __init__(self, out: TextIO = sys.stdout, *, every_s: float = LINE_EVERY_S) -> None:
        self._out = out
        self._is_terminal = out.isatty()
        self._every_s = every_s
        self._shown_at = float("-inf")
        self._is_shown = False

    def print_line(self, text: str) -> None:
        """Print one or several lines that stay."""
        self._write(f"{self._clear()}{text}\n")
        self._shown_at = time.monotonic()

    def show(self, text: str, *, at_once: bool = False) -> None:
        """Show a line that the next one replaces; without a terminal it may be delayed."""
        if self._is_terminal:
            self._write(f"{self._clear()}{text}")
            self._is_shown = True
        elif at_once or time.monotonic() - self._shown_at >= self._every_s:
            self._write(f"{text}\n")
            self._shown_at = time.monotonic()

    def _clear(self) -> str:
        was_shown, self._is_shown = self._is_shown, False
        return ERASE if was_shown else ""

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
