"""The first eight bytes of a file: seven that name its kind, one digit or letter for its version.

A file without a sound checksum is damaged. One that is sound, and has the name of its kind with
another version, was written by another release and must be left as it is.
"""

from mainstem.model.errors import UnknownVersion


def check_magic(found: bytes, wanted: bytes, what: str, subject: str) -> None:
    """Refuse a sound file of another version; one of another kind is the caller's to refuse.

    Raises:
        UnknownVersion: only the version differs.
    """
    if found != wanted and found[:-1] == wanted[:-1]:
        version = bytes(found[-1:]).decode("latin-1")
        raise UnknownVersion(what, version, wanted[-1:].decode(), subject=subject)
