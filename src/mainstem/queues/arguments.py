"""Converts the arguments of AMQP's ``queue.declare`` to settings, and settings to arguments.

Names and meanings are RabbitMQ's; as there, unknown arguments are ignored, so that clients may
use them for notes. Numbers may be any of AMQP's integer types.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.settings import (
    COUNT_MAX,
    DURATION_MS_MAX,
    DeliveryMode,
    Overflow,
    QueueSettings,
    QueueType,
    check_settings,
)

# argument -> setting, minimum, maximum
_NUMBERS = {
    "x-message-ttl": ("message_ttl_ms", 0, DURATION_MS_MAX),
    "x-expires": ("expires_ms", 1, DURATION_MS_MAX),
    "x-max-length": ("max_length", 0, COUNT_MAX),
    "x-max-length-bytes": ("max_length_bytes", 0, COUNT_MAX),
    "x-max-priority": ("max_priority", 0, 255),
    "x-consumer-timeout": ("lease_ms", 1, DURATION_MS_MAX),
    "x-delayed-retry-min": ("retry_ms", 0, DURATION_MS_MAX),
    "x-delayed-retry-max": ("retry_max_ms", 0, DURATION_MS_MAX),
    "x-acquired-limit": ("max_acquired", 1, COUNT_MAX),
}
_TEXTS = {
    "x-dead-letter-exchange": "dead_letter_exchange",
    "x-dead-letter-routing-key": "dead_letter_key",
}
_DELIVERY_LIMIT = "x-delivery-limit"
_NUMBERED = {setting: argument for argument, (setting, _, _) in _NUMBERS.items()}
_WRITTEN = {setting: argument for argument, setting in _TEXTS.items()}
_QUEUE_TYPE = "x-queue-type"

# The argument name of each setting, for errors about differing declarations.
ARGUMENT_NAMES = {
    "durable": "durable",
    "exclusive": "exclusive",
    "auto_delete": "auto_delete",
    "mode": "x-delivery-mode",
    "overflow": "x-overflow",
    "single_active": "x-single-active-consumer",
    "queue_type": _QUEUE_TYPE,
    "max_attempts": _DELIVERY_LIMIT,
    **_NUMBERED,
    **_WRITTEN,
}


def settings_of(
    arguments: Mapping[str, Any],
    *,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
) -> QueueSettings:
    """The settings that a declaration specifies.

    Raises:
        InvalidRequest: an argument has the wrong type or is out of range; it is the subject.
    """
    given: dict[str, Any] = {
        "durable": durable,
        "exclusive": exclusive,
        "auto_delete": auto_delete,
        "queue_type": QueueType.CLASSIC,
    }
    for argument, value in arguments.items():
        if argument in _NUMBERS:
            setting, low, high = _NUMBERS[argument]
            given[setting] = _number(argument, value, low, high)
        elif argument in _TEXTS:
            given[_TEXTS[argument]] = _text(argument, value)
        elif argument == _DELIVERY_LIMIT:
            # AMQP's limit counts returns; the setting includes the delivery after the last return.
            limit = _number(argument, value, -1, COUNT_MAX - 1)
            given["max_attempts"] = None if limit < 0 else limit + 1
        elif argument == "x-overflow":
            given["overflow"] = _choice(argument, value, Overflow)
        elif argument == "x-delivery-mode":
            given["mode"] = _choice(argument, value, DeliveryMode)
        elif argument == "x-single-active-consumer":
            given["single_active"] = _flag(argument, value)
        elif argument == _QUEUE_TYPE:
            given["queue_type"] = _choice(argument, value, QueueType)
    settings = QueueSettings(**given)
    _check_type(settings)
    try:
        check_settings(settings)
    except InvalidRequest as refusal:
        name = ARGUMENT_NAMES.get(refusal.subject, refusal.subject)
        raise refused(name, refusal.cause.partition(": ")[2]) from None
    return settings


def _check_type(settings: QueueSettings) -> None:
    """Refuse settings that RabbitMQ's quorum queues do not support.

    Raises:
        InvalidRequest: with the argument that is not supported.
    """
    if settings.queue_type is not QueueType.QUORUM:
        return
    unfit = {
        "durable": not settings.durable,
        "exclusive": settings.exclusive,
        "auto_delete": settings.auto_delete,
        "x-max-priority": settings.max_priority > 0,
    }
    for argument, is_unfit in unfit.items():
        if is_unfit:
            wanted = "must be durable" if argument == "durable" else f"does not support {argument}"
            raise refused(argument, f"a quorum queue {wanted}")


def arguments_of(settings: QueueSettings) -> dict[str, Any]:
    """The arguments for these settings, without those with default values."""
    usual = QueueSettings(queue_type=QueueType.CLASSIC)
    found: dict[str, Any] = {}
    for setting, argument in ARGUMENT_NAMES.items():
        value = getattr(settings, setting)
        is_usual = value is None or value == getattr(usual, setting)
        if not argument.startswith("x-") or is_usual:
            continue
        if argument == _DELIVERY_LIMIT:
            value -= 1
        found[argument] = str(value) if isinstance(value, StrEnum) else value
    return found


def refused(argument: str, cause: str) -> InvalidRequest:
    """Create the error about an invalid argument."""
    return InvalidRequest(
        ErrorCode.INVALID_ARGUMENT, f"invalid arg '{argument}': {cause}", subject=argument
    )


def _number(argument: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise refused(argument, f"{value!r} is not an integer")
    if not low <= value <= high:
        raise refused(argument, f"{value} is not between {low} and {high}")
    return value


def _text(argument: str, value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if not isinstance(value, str):
        raise refused(argument, f"{value!r} is not a string")
    return value


def _flag(argument: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise refused(argument, f"{value!r} is neither true nor false")
    return value


def _choice(
    argument: str, value: Any, choices: type[Overflow] | type[DeliveryMode] | type[QueueType]
) -> Overflow | DeliveryMode | QueueType:
    text = _text(argument, value)
    try:
        return choices(text)
    except ValueError:
        raise refused(argument, f"{text!r} is not one of {', '.join(choices)}") from None
