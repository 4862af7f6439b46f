"""Mainstem's errors as MQTT reason codes."""

from typing import Final

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.wire.mqtt.reasons import Reason

_REASONS: Final = {
    ErrorCode.AUTHENTICATION_FAILED: Reason.BAD_LOGIN,
    ErrorCode.UNSUPPORTED_MECHANISM: Reason.BAD_AUTHENTICATION_METHOD,
    ErrorCode.ILLEGAL_LOGIN_STATE: Reason.BAD_AUTHENTICATION_METHOD,
    ErrorCode.NOT_AUTHORIZED: Reason.NOT_AUTHORIZED,
    ErrorCode.CLUSTER_NOT_AUTHORIZED: Reason.NOT_AUTHORIZED,
    ErrorCode.RECORD_TOO_LARGE: Reason.PACKET_TOO_LARGE,
    ErrorCode.INVALID_TOPIC_NAME: Reason.TOPIC_NAME_INVALID,
    ErrorCode.LIMIT_REACHED: Reason.QUOTA_EXCEEDED,
    ErrorCode.THROTTLED: Reason.QUOTA_EXCEEDED,
    ErrorCode.DISK_FULL: Reason.QUOTA_EXCEEDED,
    ErrorCode.OVERLOADED: Reason.SERVER_BUSY,
    ErrorCode.NOT_WRITER: Reason.USE_ANOTHER_SERVER,
    ErrorCode.SHUTTING_DOWN: Reason.SERVER_SHUTTING_DOWN,
}
# Reason codes allowed in acknowledgements; others become "implementation specific".
_OF_MESSAGES: Final = frozenset(
    {
        Reason.NOT_AUTHORIZED,
        Reason.TOPIC_NAME_INVALID,
        Reason.PACKET_ID_IN_USE,
        Reason.QUOTA_EXCEEDED,
        Reason.PAYLOAD_FORMAT_INVALID,
    }
)


def reason_of(error: MainstemError) -> Reason:
    """The reason code for an error."""
    found = _REASONS.get(error.code)
    if found is not None:
        return found
    return Reason.SERVER_UNAVAILABLE if error.retriable else Reason.UNSPECIFIED


def ack_reason_of(error: MainstemError) -> Reason:
    """The reason code for an error in PUBACK or PUBREC."""
    reason = reason_of(error)
    return reason if reason in _OF_MESSAGES else Reason.IMPLEMENTATION_SPECIFIC
