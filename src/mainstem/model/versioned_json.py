"""JSON objects with a member ``version``; one without it is of version 1.

The version is read before the rest: a later one may look different. Pure.
"""

from typing import Final, TypeVar

import msgspec

from mainstem.model.errors import UnknownVersion

FIRST: Final = 1
Kind = TypeVar("Kind")


class _Version(msgspec.Struct):
    version: int = FIRST


_versions: Final = msgspec.json.Decoder(_Version)


def decoded(data: bytes, kind: type[Kind], what: str, subject: str, known: int = FIRST) -> Kind:
    """The object that ``data`` holds.

    Args:
        data: the file or record.
        kind: what it is to be read as.
        what: the kind of file, for the refusal.
        subject: where it was found.
        known: the highest version that this release reads.

    Raises:
        UnknownVersion: it is of a later version.
        DECODE_ERRORS: it is malformed (``model/decode_errors.py``).
    """
    found = _versions.decode(data).version
    if found > known:
        raise UnknownVersion(what, found, known, subject=subject)
    return msgspec.json.decode(data, type=kind)
