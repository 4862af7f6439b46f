"""Our errors as native clients see them: the code by its name, cause, object, remedy."""

from mainstem.model.errors import MainstemError
from mainstem.wire.native.words import Error

TEXT_LENGTH_MAX = 500


def error_of(error: BaseException | None) -> Error:
    """What a client is told; of what went wrong inside only that it did."""
    if not isinstance(error, MainstemError):
        return Error(code="INTERNAL", cause="the node failed; its log says how")
    return Error(
        code=error.code.name,
        cause=error.cause[:TEXT_LENGTH_MAX],
        object=error.subject[:TEXT_LENGTH_MAX],
        remedy=error.remedy[:TEXT_LENGTH_MAX],
        retriable=error.retriable,
    )
