"""Classifies failed system calls: what they mean for the request, the disk and the data."""

import errno
from enum import Enum, auto
from typing import Final

_DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
# The device failed, or the checksum of the file system did not match.
_BYTES_LOST: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN})
_TRANSIENT: Final = _NO_DESCRIPTORS | {errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN, errno.EINTR}


class FileErrorKind(Enum):
    """How to react to an ``OSError``."""

    DISK_FULL = auto()  # refuse writes; they succeed again when space is freed
    TRANSIENT = auto()  # refuse this request; nothing is wrong with the file or the disk
    FAILED = auto()  # the file or the disk cannot be relied on


def classify(error: OSError) -> FileErrorKind:
    """The kind of a failed call other than a sync.

    What a failed sync leaves on the disk is unknown, whatever the reported reason.
    """
    if error.errno in _DISK_FULL:
        return FileErrorKind.DISK_FULL
    return FileErrorKind.TRANSIENT if error.errno in _TRANSIENT else FileErrorKind.FAILED


def is_descriptor_shortage(error: OSError) -> bool:
    """Whether the process or the machine has no free descriptor: the file was not touched."""
    return error.errno in _NO_DESCRIPTORS


def is_unreadable(error: OSError) -> bool:
    """Whether the bytes of the file cannot be read: the rest of the disk may be intact."""
    return error.errno in _BYTES_LOST
