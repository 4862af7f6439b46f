"""Conditions that select messages: ``reason=rejected``, ``header.colour=red``, ``key=eu.*``.

    queue, reason, exchange   of the last entry in the history of a dead letter
    key                       the routing key
    header.<name>             a header
    attempts                  minimum number of deliveries

Texts are patterns in which ``*`` matches anything. All conditions have to match.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest
from mainstem.model.message import Message
from mainstem.queues.api_types import PeekedMessage
from mainstem.queues.dead_letter_history import Death, death_history_of

_HEADER = "header."
_OF_DEATH = ("queue", "reason", "exchange")
Condition = Callable[[PeekedMessage], bool]


def selection(where: Mapping[str, str]) -> Condition:
    """Compile conditions to a predicate for messages.

    Raises:
        InvalidRequest: a condition is unknown.
    """
    conditions = [_condition(name, wanted) for name, wanted in where.items()]
    return lambda browsed: all(condition(browsed) for condition in conditions)


def _condition(name: str, wanted: str) -> Condition:
    if name in _OF_DEATH:
        return lambda browsed: _fits(_last_death(browsed.message), name, wanted)
    if name == "key":
        return lambda browsed: fnmatchcase(_text(browsed.message.key), wanted)
    if name.startswith(_HEADER):
        header = name.removeprefix(_HEADER)
        return lambda browsed: _has_header(browsed.message, header, wanted)
    if name == "attempts" and wanted.isascii() and wanted.isdigit():
        least = int(wanted)
        return lambda browsed: browsed.attempts >= least
    raise InvalidRequest(
        ErrorCode.INVALID_ARGUMENT,
        f"unknown condition '{name}={wanted}'",
        subject=name[:100],
        remedy="use reason, queue, exchange, key, attempts or header.<name>",
    )


def _fits(death: Death | None, name: str, wanted: str) -> bool:
    return death is not None and fnmatchcase(str(getattr(death, name)), wanted)


def _has_header(message: Message, name: str, wanted: str) -> bool:
    value = message.header(name)
    return value is not None and fnmatchcase(_text(value), wanted)


def _last_death(message: Message) -> Death | None:
    try:
        deaths = death_history_of(message)
    except Corrupt:
        return None
    return deaths[0] if deaths else None


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")
