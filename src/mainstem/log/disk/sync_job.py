"""Job for a thread: what to make durable so that a log is durable up to an offset."""

from pathlib import Path
from typing import NamedTuple

from mainstem.log.disk.file_access import FileAccess, OpenFile
from mainstem.model.file_errors import is_descriptor_shortage


class SyncJob(NamedTuple):
    """Immutable, and keeps its files open: the log may be closed meanwhile."""

    until: int
    place: tuple[int, int, int]  # the offset, the base of the last segment, and its size
    incarnation: int
    files: tuple[OpenFile, ...]
    paths: tuple[Path, ...]  # directories and small files


def carry_out(job: SyncJob, access: FileAccess) -> None:
    """Sync every file and path of the job; blocks."""
    try:
        for file in job.files:
            access.sync_data(file.fd)
        for path in job.paths:
            access.sync_path(path)
    except OSError as error:
        if not is_descriptor_shortage(error):
            access.sync_failed()
        raise
