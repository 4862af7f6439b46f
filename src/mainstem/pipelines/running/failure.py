"""Reduces Spark's exceptions to one sentence: the cause, without stack traces.

A query that fails raises a Java exception whose text contains a Python traceback whose last line is
the cause. That line is reported; the rest is logged at debug level.
"""

import re

from pyspark.errors import AnalysisException

from mainstem.model.errors import RETRIABLE, MainstemError

SENTENCE_LENGTH_MAX = 1_000
# The last line of a Python traceback, or the message of Spark's raise_error.
_RAISED = re.compile(
    r"\[USER_RAISED_EXCEPTION\]\s*(?P<text>.+?)(?:\s+SQLSTATE|\n\s*at |\Z)", re.DOTALL
)
_PYTHON = re.compile(r"^(?:[A-Za-z_][\w.]*)(?:Error|Exception|[A-Z]\w+): .+$")
_MAINSTEM = re.compile(r"^mainstem\.[\w.]+: (?P<text>[A-Z_]+.*)$", re.MULTILINE)
_REFUSED = re.compile(r"^mainstem\.model\.errors\.InvalidRequest: ([A-Z_]+)", re.MULTILINE)
_RETRIABLE = frozenset(code.name for code in RETRIABLE)
_CAUSED = re.compile(r"^Caused by: [\w.$]+: (?P<text>.+)$", re.MULTILINE)


class StartFailed(Exception):
    """A pipeline could not be started; ``retriable`` when a retry may succeed."""

    def __init__(self, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable


def sentence(error: BaseException) -> str:
    """The cause, in one line."""
    if isinstance(error, MainstemError | StartFailed):
        return _one_line(str(error))
    # After the first line, Spark prints its plan with all options.
    first = str(error).partition("\n")[0]
    return _one_line(_found_in(str(error)) or f"{type(error).__name__}: {first}")


def is_final(error: BaseException) -> bool:
    """Whether no retry can succeed: the configuration cannot work."""
    if isinstance(error, StartFailed | MainstemError):
        return not error.retriable
    if isinstance(error, AnalysisException):
        return True
    # Errors of a source or sink in another process arrive as text.
    refused = _REFUSED.findall(str(error))
    return bool(refused) and refused[-1] not in _RETRIABLE


def _found_in(text: str) -> str:
    if raised := _RAISED.search(text):
        return raised["text"]
    if own := _MAINSTEM.findall(text):
        return str(own[-1])
    traceback = text.rpartition("Traceback (most recent call last)")[2]
    for line in traceback.splitlines() if traceback != text else ():
        if _PYTHON.match(line.strip()):
            return line.strip()
    if caused := _CAUSED.findall(text):
        return str(caused[-1])
    return ""


def _one_line(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= SENTENCE_LENGTH_MAX else short[: SENTENCE_LENGTH_MAX - 1] + "…"
