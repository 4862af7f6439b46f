"""Signals: commands to a running stream, sent through the database itself. Pure.

    {"id": "…", "type": "execute-snapshot", "data": {"data-collections": ["public.orders"]}}

Types are ``execute-snapshot``, ``stop-snapshot``, ``pause-snapshot`` and ``resume-snapshot``; names
of tables may contain ``*`` and ``?``. Anything else is logged as a warning and ignored: write
access to a table must not be enough to stop the stream.
"""

from typing import Final

import msgspec
from msgspec import Struct

from mainstem.model.decode_errors import DECODE_ERRORS

EXECUTE: Final = "execute-snapshot"
STOP: Final = "stop-snapshot"
PAUSE: Final = "pause-snapshot"
RESUME: Final = "resume-snapshot"
TYPES: Final = frozenset({EXECUTE, STOP, PAUSE, RESUME})
PREFIX: Final = "mainstem.signal"


class Signal(Struct, frozen=True):
    """One command; ``tables`` are patterns, none means all tables that it can apply to."""

    id: str
    type: str
    tables: tuple[str, ...] = ()


class _Data(Struct, frozen=True):
    tables: tuple[str, ...] = msgspec.field(name="data-collections", default=())


class _SignalMessage(Struct):
    type: str
    id: str = ""
    data: _Data = _Data()


def from_message(content: bytes) -> Signal:
    """Decode a signal from a logical message.

    Raises:
        ValueError: it is not a signal.
    """
    try:
        message = msgspec.json.decode(content, type=_SignalMessage)
    except DECODE_ERRORS as error:
        raise ValueError(f"not a signal: {error}") from None
    return _known(Signal(message.id, message.type, message.data.tables))


def from_row(values: list[str | None]) -> Signal:
    """Decode a signal from a row: id, type, data.

    Raises:
        ValueError: it is not a signal.
    """
    if len(values) < 3 or values[1] is None:
        raise ValueError("not a signal: a row of a signal table has the columns id, type, data")
    try:
        data = msgspec.json.decode(values[2] or "{}", type=_Data)
    except DECODE_ERRORS as error:
        raise ValueError(f"not a signal: data: {error}") from None
    return _known(Signal(values[0] or "", values[1], data.tables))


def _known(signal: Signal) -> Signal:
    if signal.type not in TYPES:
        raise ValueError(
            f"unknown type of signal {signal.type!r}, known: {', '.join(sorted(TYPES))}"
        )
    return signal
