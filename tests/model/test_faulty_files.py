"""Disks that fail on purpose."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault


@pytest.fixture
def files() -> Iterator[FaultyFiles]:
    with FaultyFiles() as files:
        yield files


def refused(error: pytest.ExceptionInfo[OSError]) -> str:
    return errno.errorcode[error.value.errno or 0]


def test_a_disk_that_fills_up_takes_a_part_and_refuses_the_rest(
    files: FaultyFiles, tmp_path: Path
) -> None:
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(fd, b"before", 0)
    files.begin(tmp_path, FileFault.FULL)
    assert os.pwritev(fd, [b"abcd", b"efgh"], 6) == 2
    with pytest.raises(OSError, match="No space") as error:
        os.pwrite(fd, b"cdefgh", 8)
    assert refused(error) == "ENOSPC"
    assert os.pwrite(fd, b"BEFORE", 0) == 6, "what is there can be written over"
    with pytest.raises(OSError, match="No space"):
        (tmp_path / "another").write_bytes(b"")
    files.end(tmp_path)
    assert os.pwrite(fd, b"cdefgh", 8) == 6
    os.close(fd)
    assert (tmp_path / "log").read_bytes() == b"BEFOREabcdefgh"


def test_a_process_without_descriptors_opens_nothing_and_keeps_what_is_open(
    files: FaultyFiles, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"before")
    fd = os.open(tmp_path / "log", os.O_RDWR)
    files.begin(tmp_path, FileFault.NO_DESCRIPTORS)
    for attempt in (
        lambda: os.open(tmp_path / "log", os.O_RDONLY),
        (tmp_path / "log").read_bytes,
        lambda: list(tmp_path.iterdir()),
    ):
        with pytest.raises(OSError, match="Too many") as error:
            attempt()
        assert refused(error) == "EMFILE"
    assert os.pread(fd, 6, 0) == b"before"
    os.close(fd)


@pytest.mark.parametrize(
    ("fault", "call"),
    [
        (FileFault.READS_FAIL, lambda fd: os.pread(fd, 6, 0)),
        (FileFault.SYNCS_FAIL, lambda fd: os.fsync(fd)),  # noqa: PLW0108 - the call of now
    ],
)
def test_reads_and_syncs_fail_only_where_the_fault_is(
    files: FaultyFiles, tmp_path: Path, fault: FileFault, call: Callable[[int], object]
) -> None:
    fds = []
    for name in ("sound", "broken"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log").write_bytes(b"before")
        fds.append(os.open(tmp_path / name / "log", os.O_RDWR))
    sound, broken = fds
    files.begin(tmp_path / "broken", fault)
    call(sound)
    with pytest.raises(OSError, match="Input/output") as error:
        call(broken)
    assert refused(error) == "EIO"
    assert files.refused[fault] == 1
    for fd in fds:
        os.close(fd)


def test_nothing_fails_any_more_when_it_is_over(tmp_path: Path) -> None:
    with FaultyFiles() as files:
        files.begin(tmp_path, FileFault.FULL)
    (tmp_path / "log").write_bytes(b"after")
    assert os.open.__module__ in {"posix", "os"}
