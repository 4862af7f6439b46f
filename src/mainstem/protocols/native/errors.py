"""Broker errors as native clients see them: name of the code, cause, subject, remedy."""

from mainstem.model.errors import MainstemError
from mainstem.wire.native.words import Error

TEXT_LENGTH_MAX = 500


def error_of(error: BaseException | None) -> Error:
    """The error for a client; internal errors are reported without details."""
    if not isinstance(error, MainstemError):
        return Error(code="INTERNAL", cause="internal error; see the log of the node")
    return Error(
        code=error.code.name,
        cause=error.cause[:TEXT_LENGTH_MAX],
        object=error.subject[:TEXT_LENGTH_MAX],
        remedy=error.remedy[:TEXT_LENGTH_MAX],
        retriable=error.retriable,
    )
