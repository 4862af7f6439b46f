"""The first eight bytes of a file: seven that name its kind, one digit or letter for its version.

A file without a valid checksum is damaged. An intact file of the right kind with another version
was written by another release and must be left unchanged.
"""

from mainstem.model.errors import UnknownVersion


def check_magic(found: bytes, wanted: bytes, what: str, subject: str) -> None:
    """Refuse an intact file of another version; the caller refuses one of another kind.

    Raises:
        UnknownVersion: only the version differs.
    """
    if found != wanted and found[:-1] == wanted[:-1]:
        version = bytes(found[-1:]).decode("latin-1")
        raise UnknownVersion(what, version, wanted[-1:].decode(), subject=subject)
