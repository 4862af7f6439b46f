"""A flipped byte or a cut in any file of a stopped data directory is found and named."""

import errno
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.kit.log import EPOCH, STREAM, Disk, fill, read_all

from mainstem.log.cleaning.compaction import CompactionJob, compact
from mainstem.log.disk.checked_file import write_checked
from mainstem.log.range_log import SegmentSettings, StagedBatch
from mainstem.log.verification.data_directory import verify_data_dir
from mainstem.log.verification.scrubber import Scrubber
from mainstem.model.errors import Corrupt
from mainstem.model.records.batch import stamp
from mainstem.model.records.record import Record, build_batch
from mainstem.testing.simulation.faulty_files import FaultyFiles, FileFault

if TYPE_CHECKING:
    from mainstem.log.verification.damage import Damage

SMALL = SegmentSettings(segment_bytes=700, index_interval_bytes=200)
NOT_CHECKED = {"log.lock"}  # it is empty: only its being locked means anything


def populate(disk: Disk) -> None:
    """A compacted, a sealed and an open range."""
    first = disk.open(SMALL)
    fill(first, 12)
    first.seal()
    [result] = compact(
        CompactionJob((first.directory,), 0, first.written_end, 10, 0, segment_bytes=700)
    )
    assert result.target is None  # all keys differ, so only the mark was written
    second = disk.open(SMALL, index=1, start_offset=12)
    fill(second, 8, size=5)
    second.seal()
    write_checked(disk.path / "producers.checkpoint", b"PC", b"of another room", sync=False)
    third = disk.open(SMALL, index=2, start_offset=20)
    fill(third, 4)


def compacted(disk: Disk) -> Path:
    """A range in its second generation."""
    log = disk.open(SMALL)
    fill(log, 12)
    log.roll()
    log.append([same_key_again(log.written_end)])
    log.seal()
    [result] = compact(CompactionJob((log.directory,), 0, 13, 10, 0, segment_bytes=700))
    assert result.target is not None
    disk.store.drop_range(log)
    while disk.store.sweep():
        pass
    return result.target


def same_key_again(base: int) -> StagedBatch:
    batch = build_batch([Record(0, 500, b"k000003", b"again")])
    stamp(batch, 0, base, EPOCH)
    return memoryview(batch), base, base + 1, 500


def files_of(path: Path) -> list[Path]:
    return sorted(
        file for file in path.rglob("*") if file.is_file() and file.name not in NOT_CHECKED
    )


def test_a_sound_directory_has_no_findings(disk: Disk) -> None:
    populate(disk)
    disk.stop()
    assert verify_data_dir(disk.path) == []


def test_a_directory_after_a_crash_has_no_findings(disk: Disk) -> None:
    populate(disk)
    path = disk.store.logs[next(reversed(disk.store.logs))].segments[-1].path
    disk.kill()
    os.truncate(path, path.stat().st_size - 3)
    assert verify_data_dir(disk.path) == []


@pytest.mark.parametrize("kind", ["sealed and open", "compacted"])
def test_every_flipped_byte_is_found(disk: Disk, kind: str) -> None:
    populate(disk) if kind == "sealed and open" else compacted(disk)
    disk.stop()
    missed = []
    for file in files_of(disk.path):
        sound = file.read_bytes()
        for position in range(len(sound)):
            damaged = bytearray(sound)
            damaged[position] ^= 0x04
            file.write_bytes(damaged)
            if not any(found.path in (file, file.parent) for found in verify_data_dir(disk.path)):
                missed.append((file.name, position))
        file.write_bytes(sound)
    assert missed == []
    assert verify_data_dir(disk.path) == []


@pytest.mark.parametrize("kind", ["sealed and open", "compacted"])
def test_every_cut_is_found(disk: Disk, kind: str) -> None:
    populate(disk) if kind == "sealed and open" else compacted(disk)
    disk.stop()
    missed = []
    for file in files_of(disk.path):
        sound = file.read_bytes()
        for size in range(len(sound)):
            file.write_bytes(sound[:size])
            if not verify_data_dir(disk.path):
                missed.append((file.name, size))
        file.write_bytes(sound)
    assert missed == []


def test_no_flipped_byte_of_a_log_is_ever_served(disk: Disk) -> None:
    """Flip, open after a clean stop, read everything: right bytes or an error."""
    log = disk.open(SMALL)
    content = fill(log, 12)
    log.seal()
    size = len(content) // 12
    disk.stop()
    for file, step in itertools.product(sorted(log.directory.glob("*.log")), (0, 1, 2)):
        sound = file.read_bytes()
        for position in range(step, len(sound), 3):
            damaged = bytearray(sound)
            damaged[position] ^= 0x10
            file.write_bytes(damaged)
            disk.store = disk.start()
            log = disk.open(SMALL)
            refused = 0
            for offset in range(12):
                try:
                    piece = log.read(offset, max_bytes=1, until=12, min_one=True)
                except Corrupt:
                    refused += 1
                    continue
                assert piece is not None
                assert piece.read() == content[offset * size :][:size]
            assert refused >= 1
            disk.stop()
        file.write_bytes(sound)


def test_a_compacted_range_survives_a_restart_and_refuses_a_bad_index(disk: Disk) -> None:
    target = compacted(disk)
    disk.restart(clean=False, machine_down=True)

    def reopen() -> list[int]:
        log = disk.store.open_range(
            STREAM, "orders", 0, epoch=EPOCH, start_offset=0, generation=1, config=SMALL
        )
        assert log.written_end == 13
        return [header.base_offset for header, _ in log.batches()]

    assert reopen() == [0, 1, 2, *range(4, 13)]
    index = next(iter(sorted(target.glob("*.index"))))
    index.write_bytes(index.read_bytes()[:-1] + b"\x77")
    disk.restart()
    with pytest.raises(Corrupt):
        reopen()


def test_the_scrubber_goes_round_in_small_steps_and_names_damage(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 60, size=100)
    found: list[Damage] = []
    scrubber = Scrubber(lambda: list(disk.store.logs.values()), found.append)
    while scrubber.rounds < 3:
        scrubber.step()
    assert found == []
    assert scrubber.checked_bytes >= 2 * sum(segment.size for segment in log.segments[:-1])
    victim = log.segments[2]
    data = bytearray(victim.path.read_bytes())
    data[150] ^= 1
    victim.path.write_bytes(data)
    rounds = scrubber.rounds
    while scrubber.rounds < rounds + 2:
        scrubber.step()
    assert {damage.path for damage in found} == {victim.path}


def test_the_scrubber_survives_what_is_deleted_under_it(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 100, size=100)
    scrubber = Scrubber(lambda: list(disk.store.logs.values()), print)
    walk = scrubber._walk()
    for _ in range(4):
        next(walk)
    log.trim(60)
    for _ in walk:
        pass
    walk = scrubber._walk()
    for _ in range(3):
        next(walk)
    disk.store.drop_range(log)
    list(walk)
    assert read_all(disk.open(SMALL)) == b""


def test_the_scrubber_survives_a_range_that_is_set_aside_when_its_damage_is_reported(
    disk: Disk,
) -> None:
    log = disk.open(SMALL)
    fill(log, 60, size=100)
    found: list[Damage] = []

    def set_aside(damage: "Damage") -> None:
        found.append(damage)
        if log.directory.exists():
            log.directory.rename(log.directory.with_suffix(".aside"))

    log.segments[1].path.with_suffix(".index").write_bytes(b"damaged")
    scrubber = Scrubber(lambda: [log], set_aside)
    while scrubber.rounds < 3:
        scrubber.step()
    assert found[0].path == log.segments[1].path.with_suffix(".index")


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_the_scrubber_reports_an_unreadable_file_as_damage_and_goes_on(
    disk: Disk, suffix: str
) -> None:
    log = disk.open(SMALL)
    fill(log, 60, size=100)
    found: list[Damage] = []
    scrubber = Scrubber(lambda: list(disk.store.logs.values()), found.append)
    scrubber.step()
    flipped_segment = log.segments[4]
    data = bytearray(flipped_segment.path.read_bytes())
    data[150] ^= 1
    flipped_segment.path.write_bytes(data)
    unreadable = log.segments[2].path.with_suffix(suffix)
    rounds = scrubber.rounds
    with FaultyFiles() as files:
        files.begin(unreadable, FileFault.READS_FAIL)
        while scrubber.rounds < rounds + 1:
            scrubber.step()
        assert files.refused[FileFault.READS_FAIL] > 0
    assert [damage.path for damage in found] == [unreadable, flipped_segment.path]
    assert os.strerror(errno.EIO) in found[0].cause


def test_the_scrubber_reports_an_unreadable_header_of_a_range_as_damage(disk: Disk) -> None:
    log = disk.open(SMALL)
    fill(log, 60, size=100)
    log.seal()
    found: list[Damage] = []
    scrubber = Scrubber(lambda: [log], found.append)
    scrubber.step()
    with FaultyFiles() as files:
        files.begin(log.directory / "range.header", FileFault.READS_FAIL)
        while scrubber.rounds < 2:
            scrubber.step()
    assert [damage.path for damage in found] == [log.directory / "range.header"]
    assert scrubber.checked_bytes >= log.size_bytes


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENODEV])
def test_the_scrubber_does_not_take_other_failures_for_damage(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    log = disk.open(SMALL)
    fill(log, 60, size=100)
    found: list[Damage] = []
    scrubber = Scrubber(lambda: [log], found.append)
    scrubber.step()

    def refuse(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pread", refuse)
    with pytest.raises(OSError, match=os.strerror(number)):
        scrubber.step()
    assert found == []
