"""Errors of channels and connections, with AMQP's codes and RabbitMQ's texts.

A ``ChannelRefusal`` closes one channel, a ``ConnectionRefusal`` the whole connection; AMQP defines
which of the two a code means. Mainstem's errors are translated by one table.
"""

from typing import Final

from mainstem.model.errors import ErrorCode, MainstemError

CONTENT_TOO_LARGE: Final = 311
NO_ROUTE: Final = 312
CONNECTION_FORCED: Final = 320
ACCESS_REFUSED: Final = 403
NOT_FOUND: Final = 404
RESOURCE_LOCKED: Final = 405
PRECONDITION_FAILED: Final = 406
FRAME_ERROR: Final = 501
SYNTAX_ERROR: Final = 502
COMMAND_INVALID: Final = 503
CHANNEL_ERROR: Final = 504
UNEXPECTED_FRAME: Final = 505
RESOURCE_ERROR: Final = 506
NOT_ALLOWED: Final = 530
NOT_IMPLEMENTED: Final = 540
INTERNAL_ERROR: Final = 541

NAMES: Final = {
    CONTENT_TOO_LARGE: "CONTENT_TOO_LARGE",
    NO_ROUTE: "NO_ROUTE",
    CONNECTION_FORCED: "CONNECTION_FORCED",
    ACCESS_REFUSED: "ACCESS_REFUSED",
    NOT_FOUND: "NOT_FOUND",
    RESOURCE_LOCKED: "RESOURCE_LOCKED",
    PRECONDITION_FAILED: "PRECONDITION_FAILED",
    FRAME_ERROR: "FRAME_ERROR",
    SYNTAX_ERROR: "SYNTAX_ERROR",
    COMMAND_INVALID: "COMMAND_INVALID",
    CHANNEL_ERROR: "CHANNEL_ERROR",
    UNEXPECTED_FRAME: "UNEXPECTED_FRAME",
    RESOURCE_ERROR: "RESOURCE_ERROR",
    NOT_ALLOWED: "NOT_ALLOWED",
    NOT_IMPLEMENTED: "NOT_IMPLEMENTED",
    INTERNAL_ERROR: "INTERNAL_ERROR",
}
# Codes that leave the connection open; all others close it.
_SOFT: Final = frozenset(
    {CONTENT_TOO_LARGE, ACCESS_REFUSED, NOT_FOUND, RESOURCE_LOCKED, PRECONDITION_FAILED}
)
_TEXT_BYTES_MAX: Final = 255

_CODES: Final = {
    ErrorCode.UNKNOWN_QUEUE: NOT_FOUND,
    ErrorCode.UNKNOWN_EXCHANGE: NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC: NOT_FOUND,
    ErrorCode.UNKNOWN_CONSUMER: NOT_FOUND,
    ErrorCode.DECLARATION_DIFFERS: PRECONDITION_FAILED,
    ErrorCode.RESOURCE_IN_USE: PRECONDITION_FAILED,
    ErrorCode.QUEUE_NOT_EMPTY: PRECONDITION_FAILED,
    ErrorCode.INVALID_ARGUMENT: PRECONDITION_FAILED,
    ErrorCode.INVALID_BINDING: PRECONDITION_FAILED,
    ErrorCode.INVALID_REQUEST: PRECONDITION_FAILED,
    ErrorCode.INVALID_TOPIC_NAME: PRECONDITION_FAILED,
    ErrorCode.TOPIC_EXISTS: PRECONDITION_FAILED,
    ErrorCode.UNKNOWN_DELIVERY: PRECONDITION_FAILED,
    ErrorCode.RECORD_TOO_LARGE: PRECONDITION_FAILED,
    ErrorCode.POLICY_VIOLATION: PRECONDITION_FAILED,
    ErrorCode.RESOURCE_LOCKED: RESOURCE_LOCKED,
    ErrorCode.RESERVED_NAME: ACCESS_REFUSED,
    ErrorCode.NOT_AUTHORIZED: ACCESS_REFUSED,
    ErrorCode.CLUSTER_NOT_AUTHORIZED: ACCESS_REFUSED,
    ErrorCode.GROUP_NOT_AUTHORIZED: ACCESS_REFUSED,
    ErrorCode.LIMIT_REACHED: RESOURCE_ERROR,
    ErrorCode.OVERLOADED: RESOURCE_ERROR,
    ErrorCode.DISK_FULL: RESOURCE_ERROR,
    ErrorCode.SHUTTING_DOWN: CONNECTION_FORCED,
}


class AmqpError(Exception):
    """An AMQP error: code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    @property
    def reply_text(self) -> str:
        """The text in RabbitMQ's form, truncated to the length of a short string."""
        raw = f"{NAMES[self.code]} - {self.text}".encode()
        return raw[:_TEXT_BYTES_MAX].decode(errors="ignore")


class ChannelRefusal(AmqpError):
    """Closes one channel."""


class ConnectionRefusal(AmqpError):
    """Closes the connection."""


def refused(code: int, text: str) -> AmqpError:
    """Create the refusal of the class that a code requires."""
    return ChannelRefusal(code, text) if code in _SOFT else ConnectionRefusal(code, text)


def translated(error: MainstemError, what: str, name: str, namespace: str) -> AmqpError:
    """Translate a Mainstem error about a queue or an exchange."""
    # Retriable errors close the connection: clients then reconnect by themselves.
    code = _CODES.get(error.code, CONNECTION_FORCED if error.retriable else INTERNAL_ERROR)
    place = f"{what} '{name}' in vhost '{namespace}'"
    cause = error.cause or error.code.name
    if code == NOT_FOUND:
        # The missing entity may be another one than the subject, such as the target of a binding.
        missing = "exchange" if error.code is ErrorCode.UNKNOWN_EXCHANGE else "queue"
        text = f"no {missing} '{error.subject or name}' in vhost '{namespace}'"
        if missing == what:
            text = f"no {place}"
    elif " arg '" in cause and "': " in cause:
        text = cause.replace("': ", f"' for {place}: ", 1)
    elif code == RESOURCE_LOCKED:
        text = (
            f"cannot obtain exclusive access to locked {place}. It could be originally declared "
            "on another connection or the exclusive property value does not match that of the "
            "original declaration."
        )
    elif error.code is ErrorCode.NOT_AUTHORIZED:
        text = f"access to {place} refused: {cause}"
    elif what:
        text = f"{place}: {cause}"
    else:
        text = cause
    return refused(code, text)
