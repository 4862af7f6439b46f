"""The journal on disk: what was acknowledged is there, what is damaged is never taken for data."""

import errno
import os
from pathlib import Path

import pytest
from crc32c import crc32c

from mainstem.cluster.frame_storage import FRAME, FRAMES_START, MARK
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.placement.persistence.journal_storage import (
    JournalFailed,
    JournalStorage,
    StoredJournal,
    set_aside,
)

PAYLOADS = (b'{"a":1}', b'{"b":2}\n{"c":3}', b"x" * 50)


def filled(folder: Path) -> Path:
    journal = JournalStorage(folder)
    journal.open()
    for payload in PAYLOADS:
        journal.append_now(payload)
    journal.close()
    return folder / "journal"


def reopened(folder: Path) -> StoredJournal:
    journal = JournalStorage(folder)
    try:
        return journal.open()
    finally:
        journal.close()


def test_a_new_folder_holds_nothing(tmp_path: Path) -> None:
    assert reopened(tmp_path / "catalogue").is_empty
    assert reopened(tmp_path / "catalogue").is_empty, "opening alone records nothing"


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    filled(tmp_path)
    stored = reopened(tmp_path)
    assert stored.frames == PAYLOADS
    assert (stored.snapshot, stored.cut_bytes) == (None, 0)


def test_appending_goes_on_after_a_restart(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = JournalStorage(tmp_path)
    journal.open()
    journal.append_now(b"more")
    journal.close()
    assert reopened(tmp_path).frames == (*PAYLOADS, b"more")


def test_a_torn_last_frame_is_cut_wherever_it_was_torn(tmp_path: Path) -> None:
    """The state after a power cut: the mark still says what held before the last frame."""
    path = filled(tmp_path)
    whole = path.read_bytes()
    last = len(whole) - len(PAYLOADS[-1]) - FRAME.size
    before = whole[:32] + MARK.pack(last, _crc(last)) + whole[FRAMES_START:]
    for length in range(last, len(whole)):
        path.write_bytes(before[:length])
        stored = reopened(tmp_path)
        assert stored.frames == PAYLOADS[:-1], f"torn at byte {length}"
        assert stored.cut_bytes == length - last
        assert path.stat().st_size == last, "the torn end is gone from the file"
    path.write_bytes(before)
    assert reopened(tmp_path).frames == PAYLOADS, "a whole frame behind the mark counts"


def test_a_last_frame_of_zeros_is_cut(tmp_path: Path) -> None:
    """File systems may grow the file before they write what belongs there."""
    path = filled(tmp_path)
    with path.open("ab") as file:
        file.write(bytes(4096))
    stored = reopened(tmp_path)
    assert (stored.frames, stored.cut_bytes) == (PAYLOADS, 4096)


def test_a_file_cut_short_below_the_mark_is_corrupt(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(Corrupt, match="journal is damaged"):
            reopened(tmp_path)


def test_a_flipped_byte_anywhere_is_corrupt(tmp_path: Path) -> None:
    path = filled(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x40
        path.write_bytes(damaged)
        with pytest.raises(Corrupt, match="journal is damaged") as found:
            reopened(tmp_path)
        assert str(path) in str(found.value)
        assert "--rebuild-catalogue" in found.value.remedy


def test_a_damaged_frame_behind_the_mark_is_corrupt_if_a_sound_one_follows(tmp_path: Path) -> None:
    """The next frame is written only once the last is durable, so this cannot be a torn end."""
    path = filled(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[32 : 32 + MARK.size] = MARK.pack(FRAMES_START, _crc(FRAMES_START))
    damaged[FRAMES_START + FRAME.size] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(Corrupt, match="later ones are not"):
        reopened(tmp_path)


def test_a_snapshot_stands_for_all_before_it(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = JournalStorage(tmp_path)
    journal.open()
    journal.snapshot_now(b"everything")
    journal.append_now(b"after")
    journal.close()
    stored = reopened(tmp_path)
    assert (stored.snapshot, stored.frames) == (b"everything", (b"after",))


def test_a_crash_between_snapshot_and_new_journal_loses_and_repeats_nothing(tmp_path: Path) -> None:
    path = filled(tmp_path)
    old = path.read_bytes()
    journal = JournalStorage(tmp_path)
    journal.open()
    journal.snapshot_now(b"everything")
    journal.close()
    path.write_bytes(old)
    stored = reopened(tmp_path)
    assert (stored.snapshot, stored.frames) == (b"everything", ())


def test_a_flipped_byte_or_truncation_of_a_snapshot_is_corrupt(tmp_path: Path) -> None:
    filled(tmp_path)
    journal = JournalStorage(tmp_path)
    journal.open()
    journal.snapshot_now(b"everything")
    journal.close()
    path = tmp_path / "snapshot"
    whole = path.read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x08
        for content in (bytes(damaged), whole[:at]):
            path.write_bytes(content)
            with pytest.raises(Corrupt, match="snapshot is damaged"):
                reopened(tmp_path)


@pytest.mark.parametrize("missing", ["snapshot", "journal"])
def test_a_missing_file_is_corrupt(tmp_path: Path, missing: str) -> None:
    filled(tmp_path)
    journal = JournalStorage(tmp_path)
    journal.open()
    journal.snapshot_now(b"everything")
    journal.append_now(b"after")
    journal.close()
    (tmp_path / missing).unlink()
    with pytest.raises(Corrupt):
        reopened(tmp_path)


def test_a_journal_older_than_its_snapshot_is_corrupt(tmp_path: Path) -> None:
    path = filled(tmp_path)
    old = path.read_bytes()
    journal = JournalStorage(tmp_path)
    journal.open()
    journal.append_now(b"more")
    journal.snapshot_now(b"everything")
    journal.close()
    path.write_bytes(old)
    with pytest.raises(Corrupt, match="before the snapshot"):
        reopened(tmp_path)


def test_a_snapshot_is_due_when_the_journal_has_outgrown_it(tmp_path: Path) -> None:
    journal = JournalStorage(tmp_path, snapshot_after_bytes=200)
    journal.open()
    due = [journal.snapshot_due]
    journal.append_now(b"x" * 200)
    due.append(journal.snapshot_due)
    journal.snapshot_now(b"y" * 1000)
    journal.append_now(b"x" * 500)  # a large snapshot lets the journal grow longer
    due.append(journal.snapshot_due)
    journal.append_now(b"x" * 2000)
    due.append(journal.snapshot_due)
    journal.close()
    assert due == [False, True, False, True]


def test_an_error_of_fsync_is_final(tmp_path: Path) -> None:
    broken: list[bool] = []

    def sync(fd: int) -> None:
        if broken:
            raise OSError(errno.EIO, "input/output error")
        os.fdatasync(fd)

    journal = JournalStorage(tmp_path, sync=sync)
    journal.open()
    journal.append_now(b"kept")
    broken.append(True)
    with pytest.raises(JournalFailed):
        journal.append_now(b"unknown")
    broken.clear()
    with pytest.raises(JournalFailed):
        journal.append_now(b"never written")
    with pytest.raises(JournalFailed):
        journal.snapshot_now(b"never written")
    journal.close()


def test_a_full_disk_refuses_one_command_and_the_next_may_succeed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = JournalStorage(tmp_path)
    journal.open()
    journal.append_now(b"before")
    size = (tmp_path / "journal").stat().st_size
    real = os.pwrite
    full = [True]

    def pwrite(fd: int, data: memoryview, position: int) -> int:
        if not full:
            return real(fd, data, position)
        if len(data) <= 5:
            raise OSError(errno.ENOSPC, "no space left on device")
        return real(fd, data[:5], position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(Unavailable) as refused:
        journal.append_now(b"123456789")
    assert refused.value.code is ErrorCode.DISK_FULL
    assert (tmp_path / "journal").stat().st_size == size, "the part that was written is taken back"
    full.clear()
    journal.append_now(b"after")
    journal.close()
    assert reopened(tmp_path).frames == (b"before", b"after")


def test_a_frame_whose_sync_failed_is_written_again_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: list[bool] = []

    def sync(fd: int) -> None:
        if broken:
            raise OSError(errno.EIO, "input/output error")
        os.fdatasync(fd)

    journal = JournalStorage(tmp_path, sync=sync)
    journal.open()
    journal.append_now(b"before")
    durable = (tmp_path / "journal").stat().st_size
    broken.append(True)
    with pytest.raises(JournalFailed):
        journal.append_now(b"in doubt")
    journal.close()
    real, written = os.pwrite, list[int]()

    def noted(fd: int, data: memoryview, position: int) -> int:
        written.append(position)
        return real(fd, data, position)

    monkeypatch.setattr(os, "pwrite", noted)
    assert reopened(tmp_path).frames == (b"before", b"in doubt")
    assert durable in written, "a sync alone would find nothing to write"


def test_a_damaged_catalogue_is_set_aside_not_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "catalogue"
    assert set_aside(folder) is None
    for number in (1, 2):
        filled(folder)
        aside = set_aside(folder)
        assert aside == tmp_path / f"catalogue.damaged-{number}"
        assert (aside / "journal").exists()
        assert not folder.exists()


def _crc(position: int) -> int:
    return crc32c(position.to_bytes(8, "big"))
