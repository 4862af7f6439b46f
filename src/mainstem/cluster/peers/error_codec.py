"""Errors sent between nodes: decoded as the error that was raised, except for a failed disk.

Codes are sent by name: a node of another release may have codes that this one does not. A node
whose disk fails is about to stop. The requester gets that as an unreachable node: as its
own disk's failure the error would stop the requester, too.
"""

import msgspec

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import (
    Corrupt,
    ErrorCode,
    Fenced,
    InvalidRequest,
    MainstemError,
    Unavailable,
)


class Unreachable(Unavailable):
    """A node cannot be reached now: the request was not sent."""

    def __init__(self, cause: str) -> None:
        super().__init__(ErrorCode.WRITER_UNAVAILABLE, cause)


class _Refusal(msgspec.Struct, frozen=True, array_like=True):
    family: str
    code: str
    cause: str
    subject: str
    remedy: str


_FAMILIES: dict[str, type[MainstemError]] = {
    "invalid": InvalidRequest,
    "fenced": Fenced,
    "unavailable": Unavailable,
}
_refusals = msgspec.msgpack.Decoder(_Refusal)


def encode_error(error: MainstemError) -> bytes:
    """The bytes of an error."""
    family = next((name for name, kind in _FAMILIES.items() if isinstance(error, kind)), "corrupt")
    return msgspec.msgpack.encode(
        _Refusal(family, error.code.name, error.cause, error.subject, error.remedy)
    )


def decode_error(data: bytes | memoryview) -> MainstemError:
    """The error that another node raised.

    Raises:
        Corrupt: these are not the bytes of an error.
    """
    try:
        found = _refusals.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(f"not an error of a node: {error}") from error
    family = _FAMILIES.get(found.family)
    if family is None:
        return Corrupt(found.cause, subject=found.subject, remedy=found.remedy)
    code = ErrorCode.__members__.get(found.code)
    if code is None:
        cause = f"{found.code}: {found.cause}"
        return family(ErrorCode.INTERNAL, cause, subject=found.subject, remedy=found.remedy)
    if code is ErrorCode.STORAGE_FAILED:
        cause = f"the disk of the remote node has failed: {found.cause}"
        return family(ErrorCode.WRITER_UNAVAILABLE, cause, subject=found.subject)
    return family(code, found.cause, subject=found.subject, remedy=found.remedy)
