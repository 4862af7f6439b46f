"""JSON files with a checksum: ``{member: {version, …}, checksum}``."""

from pathlib import Path
from typing import Any

import msgspec
from crc32c import crc32c

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import UnknownVersion


def check_signed(data: bytes, member: str, known: range, path: Path) -> None:
    """Refuse an undamaged file of another version; damage is not reported here.

    Raises:
        UnknownVersion: the checksum matches, and the version is none of the ``known``.
    """
    try:
        document: Any = msgspec.json.decode(data)
    except DECODE_ERRORS:
        return
    if not isinstance(document, dict) or not isinstance(document.get(member), dict):
        return
    version = document[member].get("version")
    checksum = f"{crc32c(msgspec.json.encode(document[member])):08x}"
    if version not in known and document.get("checksum") == checksum:
        readable = " to ".join(str(each) for each in sorted({known[0], known[-1]}))
        raise UnknownVersion(f"a file {path.name}", version, readable, subject=str(path))
