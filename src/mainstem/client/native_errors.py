"""Errors of the native protocol as house errors, so that callers see one kind from any protocol."""

from mainstem.model.errors import (
    RETRIABLE,
    Corrupt,
    ErrorCode,
    InvalidRequest,
    MainstemError,
    Unavailable,
)
from mainstem.wire.native.words import Error


def house_error(told: Error) -> MainstemError:
    """The house error that a node told."""
    try:
        code = ErrorCode[told.code]
    except KeyError:  # a newer node knows more words than we do
        code = ErrorCode.TIMED_OUT if told.retriable else ErrorCode.INTERNAL
    if code is ErrorCode.CORRUPT:
        return Corrupt(told.cause, subject=told.object, remedy=told.remedy)
    kind = Unavailable if code in RETRIABLE else InvalidRequest
    return kind(code, told.cause, subject=told.object, remedy=told.remedy)


def copy_of(error: MainstemError) -> MainstemError:
    """Each that waits raises its own instance, so that tracebacks do not pile up on one."""
    if isinstance(error, Corrupt):
        return Corrupt(error.cause, subject=error.subject, remedy=error.remedy)
    return type(error)(error.code, error.cause, subject=error.subject, remedy=error.remedy)
