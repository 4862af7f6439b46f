"""Keeps values from the environment, and secret settings, out of all messages.

A value from ``${VAR}`` is shown as ``${VAR}``, so that a message stays readable; a secret that is
written in the file itself is shown as ``***``. Values shorter than four characters are not hidden:
they cannot be distinguished from ordinary text, and are too short for a secret.
"""

import logging
import re
from collections.abc import Mapping, Sequence

LENGTH_MIN = 4
BLANK = "***"


class Secrets:
    """The values to hide, and their replacements."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str, shown: str = BLANK) -> None:
        """Hide a value from now on; an earlier replacement is kept."""
        if len(value) >= LENGTH_MIN and value not in self._shown:
            self._shown[value] = shown
            # The longest first: a secret may contain another.
            longest_first = sorted(self._shown, key=len, reverse=True)
            self._pattern = re.compile("|".join(re.escape(text) for text in longest_first))

    def redact(self, text: str) -> str:
        """The text without any of the values."""
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda found: self._shown[found.group()], text)

    def redact_tree(self, value: object) -> object:
        """The same for all texts inside mappings and lists."""
        if isinstance(value, str):
            return self.redact(str(value))
        if isinstance(value, Mapping):
            return {str(name): self.redact_tree(inner) for name, inner in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
            return [self.redact_tree(inner) for inner in value]
        return value


class RedactingFilter(logging.Filter):
    """Removes the values from log lines, their arguments and tracebacks."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the line; it is always logged."""
        record.msg = self._secrets.redact(record.getMessage())
        record.args = None
        if record.exc_info:
            # A formatter reuses the text of a traceback that is already there.
            text = logging.Formatter().formatException(record.exc_info)
            record.exc_text = self._secrets.redact(text)
            record.exc_info = None
            record.msg += "\n" + record.exc_text
        for name, value in vars(record).items():
            if isinstance(value, str) and name not in {"name", "levelname", "pathname", "filename"}:
                setattr(record, name, self._secrets.redact(value))
        return True
