"""All ranges on one disk: opening, dropping, finding, and the state that spans a restart.

data/directory.id        identifies this disk: a replaced disk is not the one that was assigned
data/log.checkpoint      clean stop or not, recovery points
data/log.synced          no sync has failed: see ``sync_marker``
data/log.lock            held while a process owns the directory
data/topics/...          see ``naming``
"""

import fcntl
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mainstem.log.checkpoint import (
    CHECKPOINT,
    Checkpoint,
    FileTrust,
    RecoveryPoint,
    load_checkpoint,
    read_boot_id,
    save_checkpoint,
    trust_in,
)
from mainstem.log.cleaning.pending_deletions import PendingDeletions, renamed
from mainstem.log.disk.checked_file import FILE_MODE, read_checked, write_checked
from mainstem.log.disk.file_access import FileAccess, storage_error
from mainstem.log.disk.space import DiskSpace
from mainstem.log.disk.sync_marker import SyncMarker
from mainstem.log.identity import (
    RangeHeader,
    RangeIdentity,
    read_range_header,
    read_topic_header,
)
from mainstem.log.naming import (
    ASIDE_SUFFIX,
    TOPICS,
    RangeName,
    names_in,
    parse_partition_directory,
    parse_range_directory,
    parse_topic_directory,
    range_directory,
    segment_bases,
    topic_directory_name,
)
from mainstem.log.range_log import RangeLog, SegmentSettings, is_open_on_disk
from mainstem.log.recovery import RecoveryContext, recover
from mainstem.log.segments.open_files import OpenFiles
from mainstem.log.verification.damage import Damage
from mainstem.model.clock import Clock
from mainstem.model.errors import Corrupt, ErrorCode, StorageMayRefuse, Unavailable
from mainstem.model.ids import PartitionIndex, StreamId, TopicId

logger = logging.getLogger(__name__)

DIRECTORY_ID = "directory.id"
DIRECTORY_KIND = b"ID"
LOCK = "log.lock"
SEALED_ONE_BY_ONE_MAX = 4


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The limits of the log."""

    files_open_max: int = 4_000
    boot_id: str = field(default_factory=read_boot_id)  # tests simulate that a machine went down


@dataclass(frozen=True, slots=True)
class FoundRangeDirectory:
    """A range directory that the folder scan found."""

    name: RangeName
    directory: Path


class LogStore:
    """The logs of one data directory, owned by one process."""

    def __init__(
        self,
        data_dir: Path,
        settings: StoreSettings,
        clock: Clock,
        access: FileAccess | None = None,
        *,
        space: DiskSpace | None = None,
    ) -> None:
        self.data_dir = data_dir
        self._key_prefix = f"{data_dir}/"
        self._settings = settings
        self._clock = clock
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / TOPICS).mkdir(mode=0o700, exist_ok=True)
        self._lock = _take_lock(data_dir)
        self.directory_id = _load_directory_id(data_dir)
        self.files = OpenFiles(access or FileAccess(), settings.files_open_max, space)
        self.logs: dict[Path, RangeLog] = {}
        # Partitions whose ranges are rewritten here, and ranges that are copied from other nodes:
        # both would give the next generation its name.
        self.rewriting: set[Path] = set()
        self.copying: set[Path] = set()
        self._condemned = PendingDeletions(data_dir / TOPICS)
        checkpoint = _load_checkpoint(data_dir)
        self._marker = SyncMarker(data_dir)
        # A clean stop is recorded only after a sync of everything.
        is_unclean = checkpoint is not None and not checkpoint.clean
        self.sync_failed = is_unclean and not self._marker.is_there
        if self.sync_failed:
            logger.error("the process before ended because a sync failed, or was of release 0.1")
        # What could not be synced may be missing on disk, though this machine can still read it.
        self.trust = (
            FileTrust.OTHER_BOOT if self.sync_failed else trust_in(checkpoint, settings.boot_id)
        )
        # That the machine went down must be remembered if this process crashes early, too.
        self._is_settled = self.trust is not FileTrust.OTHER_BOOT
        self._boot_before = checkpoint.boot_id if checkpoint else ""
        self._points = dict(checkpoint.points) if checkpoint else {}
        self._saved: set[str] = set()  # whose points stand in the file
        self.files.access.on_sync_failed = self._marker.remove
        if self.trust is FileTrust.SAME_BOOT:
            # What the process before wrote is there, though perhaps in the kernel's memory only;
            # from here on it counts as durable.
            self._sync_all()
        if not self.sync_failed:
            _put(self._marker)
        self.write_checkpoint()

    def open_range(  # noqa: PLR0913 -- a range has that many names
        self,
        stream: StreamId,
        topic_name: str,
        index: int,
        *,
        epoch: int,
        start_offset: int,
        generation: int = 0,
        snapshot: bytes | None = None,
        config: SegmentSettings | None = None,
    ) -> RangeLog:
        """Open what is on disk, or prepare a range whose directory is made at the first append.

        Raises:
            Corrupt: the directory belongs to another range, or its header is damaged.
            Unavailable: a system call failed.
        """
        name = RangeName(stream, topic_name, index, generation)
        identity = RangeIdentity(name, epoch, start_offset, self.directory_id)
        directory = identity.path(self.data_dir)
        assert directory not in self.logs, f"{directory} is open already"
        log = RangeLog(identity, directory, config or SegmentSettings(), self._clock, self.files)
        try:
            self._condemn_other_generations(directory, index)
            point = self._points.get(self._key(directory))
            is_there = _recovered(
                log,
                RecoveryContext(self.trust, point, sync_failed=self.sync_failed),
                self._clock,
                self.files,
            )
        except OSError as error:
            raise storage_error(error, directory) from error
        if not is_there:
            point = self._points.pop(self._key(directory), None)
            if point is not None and point.offset > start_offset:
                gone = Damage(directory, 0, f"what was durable up to {point.offset} is missing")
                logger.error("damage found on opening: %s", gone)
                log.damage.append(gone)
            if self._key(directory) in self._saved:
                # An earlier directory of this name does not determine how long this one has to be.
                self.write_checkpoint()
            log.snapshot = snapshot
        self.logs[directory] = log
        log.on_cut = lambda _log: self.write_checkpoint()
        log.on_closed = self._forget
        return log

    def drop_range(self, log: RangeLog) -> None:
        """Delete a range; slices that are still being sent keep their files."""
        log.close(discard=True)
        self._condemn(log.directory)
        self.drop_aside(log.directory)

    def set_aside(self, name: RangeName) -> Path:
        """Move a range that cannot be opened aside; the path where it would be opened.

        What can be saved of it stays there until the range is dropped.
        """
        directory = range_directory(self.data_dir, name)
        self._points.pop(self._key(directory), None)
        renamed(directory, ASIDE_SUFFIX)
        return directory

    def drop_aside(self, directory: Path) -> None:
        """What was set aside of a range is no longer needed."""
        try:
            names = names_in(directory.parent) if directory.parent.is_dir() else []
        except OSError as error:
            # The range itself is deleted; the rest is dropped with its topic.
            logger.warning("%s: could not look for what was set aside: %s", directory, error)
            return
        prefix = f"{directory.name}."
        for name in names:
            if name.startswith(prefix) and name.endswith(ASIDE_SUFFIX[1:]):
                self._condemn(directory.parent / name)

    def range_beyond(self, log: RangeLog) -> RangeHeader | None:
        """The range that follows ``log`` on disk and holds something, whichever writer started it.

        A writer starts the next range before the catalogue lists it, so a crash may leave one
        that the catalogue does not know. An unreadable one is removed: nothing in it was committed.
        """
        name = replace(log.identity.name, index=log.identity.name.index + 1, generation=0)
        directory = range_directory(self.data_dir, name)
        if not directory.is_dir() or directory in self.logs:
            return None
        try:
            header = read_range_header(directory)
        except (Corrupt, FileNotFoundError):
            header = None
        follows = (
            header is not None
            and header.start_offset == log.written_end
            and header.epoch == log.identity.epoch
            and segment_bases(directory)
        )
        if not follows:
            logger.warning("removed what a crash left over: %s", directory)
            self._condemn(directory)
            return None
        return header

    def drop_unknown(self, known: Iterable[RangeLog]) -> None:
        """Remove ranges of a stream that the catalogue has released: trimmed, joined, rewritten.

        ``known`` are all ranges of the stream that count. A crash after the catalogue decided and
        before the removal of files leaves such folders.
        """
        counted = {log.directory for log in known}
        for partition in {directory.parent for directory in counted}:
            if not partition.is_dir():
                continue
            for directory in partition.iterdir():
                is_range = parse_range_directory(directory.name) is not None
                if is_range and directory not in counted and directory not in self.logs:
                    logger.info("removed what a crash left over: %s", directory)
                    self._condemn(directory)

    def drop_topic(self, topic_name: str, topic: TopicId) -> None:
        """Delete everything of a topic; what a crash leaves is deleted at the next start."""
        directory = self.data_dir / TOPICS / topic_directory_name(topic_name, topic)
        prefix = f"{directory}/"
        for path, log in list(self.logs.items()):
            if str(path).startswith(prefix):
                log.close(discard=True)
        self._condemn(directory)

    def drop_found(self, found: FoundRangeDirectory) -> bool:
        """Delete a range that a scan found and that is not open; whether it existed."""
        if found.directory in self.logs or not found.directory.is_dir():
            return False
        self._condemn(found.directory)
        return True

    def _condemn(self, directory: Path) -> None:
        """Rename a directory for deletion; ``sweep`` removes its files gradually."""
        prefix = self._key(directory)
        for key in [key for key in self._points if key == prefix or key.startswith(prefix + "/")]:
            del self._points[key]
        self._condemned.add(directory)

    def sweep(self, files_max: int = 16) -> bool:
        """Remove some files of what was dropped; True while there is more to do."""
        return self._condemned.sweep(files_max)

    def scan(self) -> Iterator[FoundRangeDirectory]:
        """All range directories, for rebuilding a lost catalogue; unreadable names are skipped."""
        for topic_dir in sorted((self.data_dir / TOPICS).iterdir()):
            parsed = parse_topic_directory(topic_dir.name)
            if parsed is None:
                continue
            try:
                topic, topic_name = read_topic_header(topic_dir)
            except (Corrupt, FileNotFoundError):
                topic_name, topic = parsed
            for partition_dir in sorted(topic_dir.iterdir()):
                partition = parse_partition_directory(partition_dir.name)
                if partition is None:
                    continue
                stream = StreamId(topic, PartitionIndex(partition))
                for directory in sorted(partition_dir.iterdir()):
                    numbers = parse_range_directory(directory.name)
                    if numbers is not None:
                        yield FoundRangeDirectory(
                            RangeName(stream, topic_name, *numbers), directory
                        )

    def write_checkpoint(self, *, clean: bool = False) -> None:
        """Record what is durable by now; to be called from time to time.

        Raises:
            Unavailable: a call failed. After DISK_FULL the older checkpoint stays, which is valid.
        """
        for directory, log in self.logs.items():
            if log.segments and is_open_on_disk(log):
                self._points[self._key(directory)] = RecoveryPoint(*log.synced_place)
        self.files.shrink()  # files that waited for a sync could not be closed before
        boot_id = self._settings.boot_id if self._is_settled else self._boot_before
        clean = clean and self._is_settled
        try:
            save_checkpoint(self.data_dir, Checkpoint(boot_id, clean, self._points))
        except OSError as error:
            raise storage_error(error, self.data_dir / CHECKPOINT) from error
        self._saved = set(self._points)
        if self._is_settled:
            _put(self._marker)

    def settle(self) -> None:
        """Record that what a crash of the machine put in doubt was checked.

        Until then every start finds that the machine went down, however the last process ended.
        A full disk delays that until the next checkpoint.
        """
        if self._is_settled:
            return
        self._is_settled = True
        with StorageMayRefuse(logger, "the next start scans again"):
            self.write_checkpoint()

    def seal(self, logs: Sequence[RangeLog]) -> None:
        """Seal many ranges with two syncs of the file system, whatever their number.

        The seals are written when everything they cover is durable.
        """
        logs = [log for log in logs if not log.sealed]
        if len(logs) <= SEALED_ONE_BY_ONE_MAX:
            for log in logs:
                log.seal()
            return
        for log in logs:
            log.begin_seal()
        self._sync_all()
        for log in logs:
            log.end_seal()
        self._sync_all()

    def close(self) -> None:
        """Close all logs and mark the stop as clean; on a full disk it is not a clean one."""
        ends = {}
        is_clean = True
        for log in list(self.logs.values()):
            with StorageMayRefuse(logger, "not closed cleanly, the next start scans it") as closing:
                log.close(sync=False)
            is_clean = is_clean and closing.refusal is None
            if log.segments and is_open_on_disk(log):
                last = log.segments[-1]
                ends[self._key(log.directory)] = RecoveryPoint(
                    log.written_end, last.base_offset, last.size
                )
        self._sync_all()
        self._points.update(ends)
        with StorageMayRefuse(logger, "the stop is not recorded as clean, the next start scans"):
            self.write_checkpoint(clean=is_clean)
        os.close(self._lock)

    def _sync_all(self) -> None:
        try:
            self.files.access.sync_file_system(self._lock)
        except OSError as error:
            self.files.access.sync_failed()
            raise storage_error(error, self.data_dir) from error

    def _forget(self, log: RangeLog) -> None:
        self.logs.pop(log.directory, None)
        if log.segments and is_open_on_disk(log):
            self._points[self._key(log.directory)] = RecoveryPoint(*log.synced_place)
        else:
            self._points.pop(self._key(log.directory), None)

    def _key(self, directory: Path) -> str:
        # Not ``relative_to``: it parses both paths, for every range that is opened.
        return str(directory).removeprefix(self._key_prefix)

    def _condemn_other_generations(self, directory: Path, index: int) -> None:
        """What compaction left over: the catalogue lists the generation that counts."""
        partition, prefix = directory.parent, f"range-{index}.g"
        for name in names_in(partition) if partition.is_dir() else ():
            if not name.startswith(prefix) or name == directory.name:
                continue
            sibling = partition / name
            if parse_range_directory(name) is not None and sibling not in self.logs:
                self._condemn(sibling)


def _recovered(log: RangeLog, known: RecoveryContext, clock: Clock, files: OpenFiles) -> bool:
    """Fill a log from its directory; False when there is nothing to fill it from."""
    if not log.directory.is_dir():
        return False
    if not segment_bases(log.directory):  # the process crashed before the first batch was in it
        shutil.rmtree(log.directory)
        return False
    recover(log, known, clock, files)
    return True


def _load_checkpoint(data_dir: Path) -> Checkpoint | None:
    try:
        return load_checkpoint(data_dir)
    except Corrupt as error:
        # Without it nothing is known to be durable: every open range is scanned as a whole.
        logger.error("the checkpoint is damaged and is not used: %s", error)  # noqa: TRY400
        return None


def _take_lock(data_dir: Path) -> int:
    fd = os.open(data_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise Unavailable(
            ErrorCode.STORAGE_FAILED,
            "another process owns the data directory",
            subject=str(data_dir),
            remedy="stop the other node or choose another directory",
        ) from None
    return fd


def _load_directory_id(data_dir: Path) -> bytes:
    path = data_dir / DIRECTORY_ID
    try:
        return read_checked(path, DIRECTORY_KIND)
    except FileNotFoundError:
        fresh = os.urandom(16)
        write_checked(path, DIRECTORY_KIND, fresh, sync=True)
        return fresh


def _put(marker: SyncMarker) -> None:
    """Record that no sync has failed; on a full disk a later checkpoint does.

    Without the record the next start trusts what was not synced less than it could.
    """
    with StorageMayRefuse(logger, "it is not recorded yet that no sync has failed"):
        marker.put()
