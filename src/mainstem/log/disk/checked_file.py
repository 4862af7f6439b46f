"""Small files with a checksum, replaced as a whole: headers, snapshots, checkpoints.

    0         8      10       12       16      20
    MAINSTEM  kind   version  length   crc32c  payload ...

The checksum covers kind, version, length and payload. A reader gets exactly what was written, or
``Corrupt``. Every later version has the same first 20 bytes, so that a reader can tell one from
damage.
"""

import contextlib
import os
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from mainstem.model.errors import Corrupt, UnknownVersion

MAGIC = b"MAINSTEM"
HEADER = Struct(">8s2sHII")
VERSION = 1
FILE_MODE = 0o600  # records, offsets and logins are for the owner of the data folder only
_FRONT = Struct(">2sHI")


def write_checked(path: Path, kind: bytes, payload: bytes, *, sync: bool) -> None:
    """Replace the file in one step; with ``sync`` its bytes and its name are durable on return."""
    crc = crc32c(payload, crc32c(_FRONT.pack(kind, VERSION, len(payload))))
    replace_file(path, HEADER.pack(MAGIC, kind, VERSION, len(payload), crc) + payload, sync=sync)


def overwrite_checked(path: Path, kind: bytes, payload: bytes) -> bool:
    """Write over a file in its place, durably; False where it has no space for so many bytes.

    Takes no blocks of a full disk. A crash in the middle of it leaves a damaged file.
    """
    body_bytes = path.stat().st_size - HEADER.size
    if len(payload) > body_bytes:
        return False
    payload = payload.ljust(body_bytes)
    crc = crc32c(payload, crc32c(_FRONT.pack(kind, VERSION, len(payload))))
    view = memoryview(HEADER.pack(MAGIC, kind, VERSION, len(payload), crc) + payload)
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        while view:
            view = view[os.write(fd, view) :]
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def replace_file(path: Path, data: bytes, *, sync: bool) -> None:
    """Replace a file in one step; one that could not be written whole leaves no bytes behind."""
    fresh = path.with_name(path.name + ".tmp")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if sync:
            os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):  # a full disk needs its blocks for something else
            fresh.unlink()
        raise
    finally:
        os.close(fd)
    fresh.replace(path)
    if sync:
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def read_checked(path: Path, kind: bytes | None = None) -> bytes:
    """The payload; of any kind when none is named.

    Raises:
        FileNotFoundError: there is no such file.
        Corrupt: the file is damaged, cut or of another kind.
        UnknownVersion: it is complete, and this release does not know its version.
    """
    data = path.read_bytes()
    if len(data) < HEADER.size:
        raise Corrupt(f"{len(data)} bytes where a header needs {HEADER.size}", subject=str(path))
    magic, found, version, length, crc = HEADER.unpack_from(data)
    payload = data[HEADER.size :]
    if magic != MAGIC or (kind is not None and found != kind):
        raise Corrupt(f"not a file of kind {kind!r}", subject=str(path))
    if len(payload) != length:
        raise Corrupt(f"{len(payload)} bytes where the header has {length}", subject=str(path))
    if crc32c(payload, crc32c(_FRONT.pack(found, version, length))) != crc:
        raise Corrupt("the checksum does not match", subject=str(path))
    if version != VERSION:
        what = f"a file of kind {found.decode('latin-1')}"
        raise UnknownVersion(what, version, VERSION, subject=str(path))
    return payload
