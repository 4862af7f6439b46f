"""Structured log lines: one line per event, text for people, JSON for machines.

    2026-01-31 12:00:00.123 INFO  node: ready kafka=127.0.0.1:9092 startup_ms=211
    {"time":"2026-01-31T12:00:00.123Z","level":"info","component":"node","message":"ready",...}

Facts go into ``extra``, never into the message, so that a line can be searched by them. Values
whose name or form indicates a secret are blanked. A message that repeats is written a few times and
then counted, so that one faulty client cannot fill a disk.
"""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

PACKAGE = "mainstem"
REPEATS_WRITTEN = 5
REPEAT_WINDOW_S = 10.0
REPEATS_REMEMBERED_MAX = 1_000
VALUE_LENGTH_MAX = 2_000

# Attributes of every log record; all others came through ``extra``.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_SECRET_NAME = re.compile(r"passw|secret|token|credential|authori[sz]ation|api_?key|private", re.I)
_SECRET_IN_URL = re.compile(r"(\w+://[^\s/:@]+:)[^\s/@]+(@)")
_SECRET_IN_TEXT = re.compile(r"(?i)\b(password|secret|token)(\s*[=:]\s*)\S+")
BLANK = "***"


def logger(component: str) -> logging.Logger:
    """The logger of a component."""
    return logging.getLogger(f"{PACKAGE}.{component}")


def configure(*, level: str, style: str, out: TextIO) -> None:
    """Send all log lines to ``out``; ``style`` is ``auto``, ``text`` or ``json``."""
    as_text = style == "text" or (style == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    handler.addFilter(RepeatFilter())
    root = logging.getLogger(PACKAGE)
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    root.propagate = False


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": _when(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "component": _component(record),
            "message": redact(record.getMessage()),
            **facts(record),
        }
        if record.exc_info:
            line["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """One text line: the message, then the facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the traceback below it if there is one."""
        when = _when(record).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        text = f"{when} {record.levelname:<5} {_component(record)}: {redact(record.getMessage())}"
        for name, value in facts(record).items():
            text += f" {name}={_word(value)}"
        text = text.replace("\n", "\\n")
        if record.exc_info:
            text += "\n" + redact(self.formatException(record.exc_info))
        return text


class RepeatFilter(logging.Filter):
    """Writes a repeated message a few times per window, then logs how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is written."""
        key = (record.name, str(record.msg))
        since, count = self._seen.get(key, (record.created, 0))
        if record.created - since >= REPEAT_WINDOW_S:
            if count > REPEATS_WRITTEN:
                record.left_out = count - REPEATS_WRITTEN
            since, count = record.created, 0
        if key not in self._seen and len(self._seen) >= REPEATS_REMEMBERED_MAX:
            self._seen.pop(next(iter(self._seen)))
        self._seen[key] = (since, count + 1)
        return count < REPEATS_WRITTEN


def facts(record: logging.LogRecord) -> dict[str, object]:
    """What came through ``extra``, with secrets blanked."""
    return {
        name: BLANK if _SECRET_NAME.search(name) else _shown(value)
        for name, value in vars(record).items()
        if name not in _STANDARD and not name.startswith("_")
    }


def redact(text: str) -> str:
    """Blank passwords in addresses and in ``name=value`` text."""
    text = _SECRET_IN_URL.sub(rf"\1{BLANK}\2", text)
    return _SECRET_IN_TEXT.sub(rf"\1\2{BLANK}", text)


def _shown(value: object) -> object:
    if isinstance(value, bool | int | float) or value is None:
        return value
    if isinstance(value, Mapping):
        return {
            str(name): BLANK if _SECRET_NAME.search(str(name)) else _shown(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(inner) for inner in value]
    return redact(str(value))[:VALUE_LENGTH_MAX]


def _word(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or " " in text else text


def _component(record: logging.LogRecord) -> str:
    return record.name.removeprefix(f"{PACKAGE}.").split(".", maxsplit=1)[0]


def _when(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, tz=UTC)
