"""Power loss on a real file system: ext4 on a loop device, shut down in the middle of writing.

The ioctl drops everything that was not forced out, the journal included, and fails all later
writes: what a machine finds after its plug was pulled. Root only. Promises: whatever happens, the
file system is unmounted and its loop device released.
"""

import contextlib
import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from confluent_kafka import KafkaException
from tests.chaos.history import Anomaly, History, Outcome, check
from tests.chaos.load import GroupReader, Loader, create_topics, read_all, resume_all

from mainstem.testing.local_node import LocalNode
from mainstem.testing.server_process import ServerFailed

# _IOR('X', 125, __u32); 2 = neither flush the log nor anything else.
GOING_DOWN = 0x8004587D
NO_LOG_FLUSH = (2).to_bytes(4, "little")
IMAGE_BYTES = 1 << 30
BLOCK_BYTES = 4096
ENVIRONMENT = os.environ | {"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
ACKNOWLEDGED_MIN = 500
STOP_TIMEOUT_S = 30.0


class FileSystem:
    """An ext4 file system in a file, which can lose its power."""

    def __init__(self, folder: Path) -> None:
        self._image = folder / "disk.img"
        self.mounted = folder / "mounted"
        self.mounted.mkdir()
        self._filler = self.mounted / "filler"
        with self._image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", "-F", str(self._image))

    def mount(self) -> None:
        """Mount it; after a loss of power this replays the journal."""
        _run("mount", "-o", "loop", str(self._image), str(self.mounted))

    def sync(self) -> None:
        """Force everything out."""
        _run("sync", "--file-system", str(self.mounted))

    def lose_power(self) -> None:
        """From now on nothing reaches the disk, and what was not forced out is gone."""
        descriptor = os.open(self.mounted, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, GOING_DOWN, NO_LOG_FLUSH)
        finally:
            os.close(descriptor)

    def fill(self) -> None:
        """Leave no room on it, not even for root."""
        filler = os.open(self._filler, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            piece = IMAGE_BYTES
            while piece >= BLOCK_BYTES:
                try:
                    os.posix_fallocate(filler, os.fstat(filler).st_size, piece)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    piece //= 2
        finally:
            os.close(filler)

    def make_room(self) -> None:
        """Give back what ``fill`` took."""
        self._filler.unlink(missing_ok=True)

    def unmount(self) -> None:
        """Unmount it; nobody may use it any more."""
        _run("umount", str(self.mounted))


@contextlib.contextmanager
def file_system(folder: Path) -> Iterator[FileSystem]:
    """A mounted file system that is gone at the end."""
    made = FileSystem(folder)
    made.mount()
    try:
        yield made
    finally:
        if made.mounted.is_mount():
            made.unmount()


@dataclass(frozen=True)
class Loss:
    """What became of a node and its records when the power went."""

    history: History
    once: frozenset[str]  # the idempotent producers
    # How the node ended by itself after its disk began to fail; None if it had to be killed.
    status: int | None
    log: str
    # Why the node did not start again; empty if it did.
    refused: str = ""

    @cached_property
    def anomalies(self) -> list[Anomaly]:
        """Every broken rule."""
        return check(self.history, once=self.once)


def lose_power_under_load(folder: Path, *, preload: Path | None = None) -> Loss:
    """Load a node, cut the power, bring file system and node back, and judge the history."""
    history = History()
    topics = ["once", "plain"]
    environment = {"LD_PRELOAD": str(preload)} if preload else {}
    with (
        file_system(folder) as disk,
        LocalNode(disk.mounted / "data", environment=environment) as node,
    ):
        create_topics(node.kafka, {topic: {} for topic in topics})
        loaders = [
            Loader(node.kafka, topics[0], history, idempotent=True),
            Loader(node.kafka, topics[1], history, idempotent=False),
        ]
        for loader in loaders:
            loader.start()
        group = GroupReader(node.kafka, topics[0], history)
        _await_progress(loaders, group)
        if preload:
            # Topics and first records are safe, so that later records are all that can be lost.
            disk.sync()
            _await_progress(loaders, group)
        lost_at = time.monotonic()
        disk.lose_power()
        status = _end_by_itself(node)
        for loader in loaders:
            loader.abandon()
        _forget_answers(history, lost_at)
        node.kill9()
        disk.unmount()
        disk.mount()
        refused = _come_back(node, group, history, topics)
        once = frozenset({loaders[0].name})
        return Loss(history, once, status, node.log_text(), refused)


def _forget_answers(history: History, lost_at: float) -> None:
    """A machine without power answers nobody.

    Here it may: a sync that was under way when the file system went down can end well although the
    kernel could not note down any more that the blocks are written.
    """
    for sent in history.sent:
        if sent.outcome is Outcome.OK and sent.ended >= lost_at:
            sent.outcome = Outcome.UNKNOWN
            sent.offset = None


def _come_back(node: LocalNode, group: GroupReader, history: History, topics: list[str]) -> str:
    """Start the node again and read everything; why that was not possible, or nothing."""
    try:
        node.start()
        # No new record will come: one more per partition shows where the group resumes.
        group.replace_member()
        resume_all(node.kafka, group, history, topics[0])
        group.close()
        history.final = read_all(node.kafka, topics)
    except (ServerFailed, KafkaException, AssertionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def compile_lying_disk(folder: Path) -> Path:
    """The shim that makes every sync do nothing, for a run that must lose records."""
    library = folder / "no_sync.so"
    source = Path(__file__).with_name("no_sync.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return library


def _await_progress(loaders: list[Loader], group: GroupReader) -> None:
    deadline = time.monotonic() + 30
    wanted = [loader.acknowledged + ACKNOWLEDGED_MIN for loader in loaders]
    while not group.committed_everywhere or any(
        one.acknowledged < count for one, count in zip(loaders, wanted, strict=True)
    ):
        assert time.monotonic() < deadline, "no load before the power went"
        group.turn(0.02)


def _end_by_itself(node: LocalNode) -> int | None:
    try:
        return node.wait(timeout_s=STOP_TIMEOUT_S)
    except ServerFailed:
        return None


def _run(*command: str) -> None:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
