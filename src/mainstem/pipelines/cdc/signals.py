"""Commands that reach a running stream through the database itself. Pure.

    {"id": "…", "type": "execute-snapshot", "data": {"data-collections": ["public.orders"]}}

Types are ``execute-snapshot``, ``stop-snapshot``, ``pause-snapshot`` and ``resume-snapshot``; names
of tables may hold ``*`` and ``?``. What is none of these is warned of and otherwise ignored:
whoever may write to a table must not be able to stop the stream.
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
    """One command; ``tables`` are patterns, none means all that it can concern."""

    id: str
    type: str
    tables: tuple[str, ...] = ()


class _Data(Struct, frozen=True):
    tables: tuple[str, ...] = msgspec.field(name="data-collections", default=())


class _Message(Struct):
    type: str
    id: str = ""
    data: _Data = _Data()


def from_message(content: bytes) -> Signal:
    """A signal that came as a message.

    Raises:
        ValueError: it is none.
    """
    try:
        message = msgspec.json.decode(content, type=_Message)
    except DECODE_ERRORS as error:
        raise ValueError(f"no signal: {error}") from None
    return _known(Signal(message.id, message.type, message.data.tables))


def from_row(values: list[str | None]) -> Signal:
    """A signal that came as a row: id, type, data.

    Raises:
        ValueError: it is none.
    """
    if len(values) < 3 or values[1] is None:
        raise ValueError("no signal: a row of a signal table is id, type, data")
    try:
        data = msgspec.json.decode(values[2] or "{}", type=_Data)
    except DECODE_ERRORS as error:
        raise ValueError(f"no signal: data: {error}") from None
    return _known(Signal(values[0] or "", values[1], data.tables))


def _known(signal: Signal) -> Signal:
    if signal.type not in TYPES:
        raise ValueError(f"{signal.type!r} is no type of signal: {', '.join(sorted(TYPES))}")
    return signal
