"""The write-ahead log on a real disk: what it keeps, what it refuses, what it never guesses."""

import errno
import os
from pathlib import Path

import pytest

from mainstem.cluster.frame_storage import FRAMES_START
from mainstem.cluster.raft.messages import Entry, EntryId, HardState
from mainstem.cluster.raft.persistence.wal_storage import StorageFailed, WalFrame, WalStorage
from mainstem.model.errors import Corrupt, ErrorCode, Unavailable
from mainstem.model.ids import NodeId

TWO = NodeId(2)


def entries(*terms: int, start: int = 2) -> tuple[Entry, ...]:
    return tuple(
        Entry(term, index, data=b"entry %d" % index) for index, term in enumerate(terms, start)
    )


def opened(folder: Path, segment_bytes: int = 1 << 20) -> WalStorage:
    wal = WalStorage(folder, segment_bytes=segment_bytes)
    wal.open()
    return wal


def found(folder: Path) -> tuple[HardState, EntryId | None, list[Entry]]:
    wal = WalStorage(folder)
    kept = wal.open()
    wal.close()
    return kept


def test_what_was_appended_is_found_again(disk: Path) -> None:
    wal = opened(disk)
    wal.append(WalFrame(HardState(3, TWO, 1), None, entries(1, 2)))
    wal.append(WalFrame(None, None, entries(3, start=4)))
    wal.close()
    assert found(disk) == (HardState(3, TWO, 1), None, list(entries(1, 2, 3)))


def test_later_entries_replace_those_from_their_place_on(disk: Path) -> None:
    wal = opened(disk)
    wal.append(WalFrame(None, None, entries(1, 1, 1)))
    wal.append(WalFrame(HardState(2), None, entries(2, start=3)))
    wal.close()
    _, _, kept = found(disk)
    assert [(entry.index, entry.term) for entry in kept] == [(2, 1), (3, 2)]


def test_an_installed_snapshot_begins_the_log_anew(disk: Path) -> None:
    wal = opened(disk)
    wal.append(WalFrame(None, None, entries(1, 1, 1)))
    wal.append(WalFrame(None, EntryId(9, 2), entries(2, start=10)))
    wal.close()
    _, start, kept = found(disk)
    assert start == EntryId(9, 2)
    assert [entry.index for entry in kept] == [10]


def test_every_frame_is_on_the_disk_when_append_returns(disk: Path) -> None:
    """What a power failure would leave is what the file held at the last sync."""
    on_disk: dict[str, bytes] = {}

    def sync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        on_disk[str(path)] = path.read_bytes()

    wal = WalStorage(disk, sync=sync)
    wal.open()
    for index in range(2, 6):
        wal.append(WalFrame(HardState(index), None, entries(1, start=index)))
        lost = disk / f"power-loss-{index}"
        lost.mkdir()
        [path] = disk.glob("*.wal")
        held = on_disk.get(str(path), on_disk.get(f"{path}.new", b""))
        (lost / path.name).write_bytes(held)
        hard_state, _, kept = found(lost)
        assert hard_state.term == index
        assert kept[-1].index == index
    wal.close()


def test_a_torn_last_frame_is_cut_off(disk: Path) -> None:
    wal = opened(disk)
    wal.append(WalFrame(None, None, entries(1)))
    [path] = disk.glob("*.wal")
    marked = path.read_bytes()  # as the disk held it before the second frame was synced
    wal.append(WalFrame(None, None, entries(1, start=3)))
    wal.close()
    whole = path.read_bytes()
    for cut in range(len(marked), len(whole)):
        path.write_bytes(marked + whole[len(marked) : cut])
        torn = WalStorage(disk)
        _, _, kept = torn.open()
        assert kept == list(entries(1))
        assert torn.cut_bytes == cut - len(marked)
        torn.append(WalFrame(None, None, entries(7, start=3)))
        torn.close()
        _, _, again = found(disk)
        assert again[-1].term == 7


def test_a_flipped_bit_in_what_was_durable_stops_the_node(disk: Path) -> None:
    wal = opened(disk)
    wal.append(WalFrame(HardState(4, TWO, 1), None, entries(1)))
    wal.append(WalFrame(None, None, entries(1, 1, start=3)))
    wal.close()
    [path] = disk.glob("*.wal")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(Corrupt, match="damaged"):
            WalStorage(disk).open()


def test_a_log_that_was_cut_short_stops_the_node(disk: Path) -> None:
    wal = opened(disk)
    wal.append(WalFrame(None, None, entries(1, 1)))
    wal.close()
    [path] = disk.glob("*.wal")
    whole = path.read_bytes()
    for cut in (0, 10, FRAMES_START, len(whole) - 1):
        path.write_bytes(whole[:cut])
        with pytest.raises(Corrupt):
            WalStorage(disk).open()


def test_a_damaged_frame_before_a_sound_one_is_no_torn_end(disk: Path) -> None:
    wal = opened(disk)
    [path] = disk.glob("*.wal")
    old_mark = path.read_bytes()[32:64]
    wal.append(WalFrame(None, None, entries(1)))
    place = path.stat().st_size - 3
    wal.append(WalFrame(None, None, entries(1, start=3)))
    wal.close()
    data = bytearray(path.read_bytes())
    data[32:64] = old_mark
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corrupt, match="later ones are not"):
        WalStorage(disk).open()


def test_files_follow_each_other_and_go_when_a_snapshot_covers_them(disk: Path) -> None:
    wal = opened(disk, segment_bytes=300)
    for index in range(2, 30):
        wal.append(WalFrame(HardState(1, TWO, index - 1), None, entries(1, start=index)))
    files = len(list(disk.glob("*.wal")))
    assert files > 3
    wal.forget_until(20)
    wal.close()
    assert len(list(disk.glob("*.wal"))) < files
    hard_state, _, kept = found(disk)
    assert hard_state == HardState(1, TWO, 28)
    assert kept[0].index <= 21
    assert kept[-1].index == 29


def test_the_file_that_is_written_to_never_goes(disk: Path) -> None:
    wal = opened(disk)
    wal.append(WalFrame(HardState(5, TWO, 1), None, entries(1)))
    wal.forget_until(1_000)
    wal.close()
    assert found(disk)[0].term == 5


def test_a_file_missing_in_the_middle_stops_the_node(disk: Path) -> None:
    wal = opened(disk, segment_bytes=200)
    for index in range(2, 20):
        wal.append(WalFrame(None, None, entries(1, start=index)))
    wal.close()
    sorted(disk.glob("*.wal"))[1].unlink()
    with pytest.raises(Corrupt, match="follows"):
        WalStorage(disk).open()


def test_a_failed_sync_is_final(disk: Path) -> None:
    broken = False

    def sync(fd: int) -> None:
        if broken:
            raise OSError(errno.EIO, "the disk is gone")
        os.fdatasync(fd)

    wal = WalStorage(disk, sync=sync)
    wal.open()
    wal.append(WalFrame(None, None, entries(1)))
    broken = True
    with pytest.raises(StorageFailed, match="the disk is gone"):
        wal.append(WalFrame(None, None, entries(1, start=3)))
    broken = False
    with pytest.raises(StorageFailed, match="closed"):
        wal.append(WalFrame(None, None, entries(1, start=3)))
    wal.close()


def test_a_full_disk_keeps_nothing_of_a_frame_and_loses_nothing_else(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wal = opened(disk)
    wal.append(WalFrame(None, None, entries(1)))
    real = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if len(data) > 20:
            return real(fd, data[:20], position)
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(Unavailable) as refused:
            wal.append(WalFrame(None, None, entries(1, start=3)))
    assert refused.value.code is ErrorCode.DISK_FULL
    wal.append(WalFrame(None, None, entries(9, start=3)))
    wal.close()
    _, _, kept = found(disk)
    assert [entry.term for entry in kept] == [1, 9]


def test_a_vote_is_still_known_when_the_file_that_held_it_is_gone(disk: Path) -> None:
    wal = opened(disk, segment_bytes=300)
    wal.append(WalFrame(HardState(7, TWO, 1), None, entries(7)))
    for index in range(3, 40):
        wal.append(WalFrame(None, None, entries(7, start=index)))
    wal.forget_until(38)
    wal.close()
    assert len(list(disk.glob("*.wal"))) < 3
    hard_state, _, _ = found(disk)
    assert (hard_state.term, hard_state.vote) == (7, TWO)
