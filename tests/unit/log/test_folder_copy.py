"""Rewritten ranges that another disk takes over as files."""

from pathlib import Path

import pytest
from tests.kit.log import EPOCH, STREAM, Disk, fill, read_all

from mainstem.log.cleaning.merging import MergeJob, merge
from mainstem.log.folder_copy import FolderCopy, folder_files, read_piece
from mainstem.log.identity import RangeIdentity
from mainstem.log.naming import RangeName
from mainstem.model.errors import Corrupt, InvalidRequest

GENERATION = 1


def rewritten(disk: Disk) -> tuple[Path, bytes]:
    """The folder of two ranges that were joined, and their records."""
    first = disk.open()
    fill(first, 5)
    second = disk.open(start_offset=5, index=1)
    fill(second, 5)
    records = read_all(first) + read_all(second)
    for log in (first, second):
        log.seal()
    job = MergeJob((first.directory, second.directory), GENERATION, 1 << 20)
    return merge(job).target, records


def copy_of(other: Disk) -> FolderCopy:
    name = RangeName(STREAM, "orders", 0, GENERATION)
    identity = RangeIdentity(name, EPOCH, 0, other.store.directory_id)
    return FolderCopy(identity, other.path)


def test_a_folder_is_read_on_another_disk_as_on_its_own(disk: Disk, tmp_path: Path) -> None:
    source, records = rewritten(disk)
    other = Disk(tmp_path / "other")
    copy = copy_of(other)
    for name, size in folder_files(source):
        copy.write(name, 0, read_piece(source, name, 0, 10))
        copy.write(name, min(10, size), read_piece(source, name, 10, size))

    copy.publish()

    log = other.store.open_range(
        STREAM, "orders", 0, epoch=EPOCH, start_offset=0, generation=GENERATION
    )
    assert read_all(log) == records
    assert log.sealed
    assert log.verify() == []
    other.stop()


def test_a_folder_with_a_damaged_byte_gets_no_name(disk: Disk, tmp_path: Path) -> None:
    source, _ = rewritten(disk)
    other = Disk(tmp_path / "other")
    copy = copy_of(other)
    for name, size in folder_files(source):
        data = bytearray(read_piece(source, name, 0, size))
        if name.endswith(".log"):
            data[size // 2] ^= 1
        copy.write(name, 0, bytes(data))

    with pytest.raises(Corrupt):
        copy.publish()

    assert not copy.target.exists()
    other.stop()


@pytest.mark.parametrize("name", ["../range.seal", "range.header", "/etc/passwd", "x.log"])
def test_a_name_that_is_not_of_a_range_is_refused(disk: Disk, tmp_path: Path, name: str) -> None:
    source, _ = rewritten(disk)
    other = Disk(tmp_path / "other")
    copy = copy_of(other)

    with pytest.raises(Corrupt):
        copy.write(name, 0, b"")
    with pytest.raises(InvalidRequest):
        read_piece(source, name, 0, 1)
    other.stop()


def test_a_piece_that_leaves_a_gap_is_refused(tmp_path: Path) -> None:
    other = Disk(tmp_path / "other")
    copy = copy_of(other)

    with pytest.raises(Corrupt):
        copy.write("range.seal", 5, b"late")
    other.stop()


def test_a_folder_that_is_not_finished_has_no_files_to_give(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        folder_files(tmp_path)
