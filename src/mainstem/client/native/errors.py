"""Errors of the native protocol as Mainstem errors, so that callers see one kind of error."""

from mainstem.model.errors import (
    RETRIABLE,
    Corrupt,
    ErrorCode,
    InvalidRequest,
    MainstemError,
    Unavailable,
)
from mainstem.wire.native.words import Error


def mainstem_error(error: Error) -> MainstemError:
    """The error that a node sent."""
    try:
        code = ErrorCode[error.code]
    except KeyError:  # a newer node may have error codes that are unknown here
        code = ErrorCode.TIMED_OUT if error.retriable else ErrorCode.INTERNAL
    if code is ErrorCode.CORRUPT:
        return Corrupt(error.cause, subject=error.object, remedy=error.remedy)
    kind = Unavailable if code in RETRIABLE else InvalidRequest
    return kind(code, error.cause, subject=error.object, remedy=error.remedy)


def copy_of(error: MainstemError) -> MainstemError:
    """A copy for each waiting call, so that tracebacks do not accumulate in one instance."""
    if isinstance(error, Corrupt):
        return Corrupt(error.cause, subject=error.subject, remedy=error.remedy)
    return type(error)(error.code, error.cause, subject=error.subject, remedy=error.remedy)
