"""All ranges of a disk: names, dropping, finding, the lock, the checkpoint."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.clock import ManualClock
from tests.kit.log import EPOCH, STREAM, TOPIC, Disk, fill, read_all

from mainstem.log.checkpoint import Checkpoint, FileTrust, load_checkpoint, trust_in
from mainstem.log.identity import read_range_header
from mainstem.log.naming import (
    RangeName,
    decode_name,
    encode_name,
    parse_topic_directory,
    range_directory,
    topic_directory_name,
)
from mainstem.log.store import LogStore, StoreSettings
from mainstem.model.errors import Corrupt, Unavailable
from mainstem.model.ids import PartitionIndex, StreamId, TopicId

NASTY = ["..", ".", "a/b", "../../etc/passwd", "~", "a~b", "%2e", "\x00", "ü" * 249, "x" * 249, ""]


@pytest.mark.parametrize("name", NASTY)
def test_no_topic_name_leaves_its_directory(name: str) -> None:
    directory = topic_directory_name(name, TOPIC)
    assert "/" not in directory
    assert "\x00" not in directory
    assert directory not in {".", ".."}
    assert not directory.startswith(".")
    assert len((directory + ".999.deleted").encode()) <= 255
    path = range_directory(Path("/data"), RangeName(STREAM, name, 1, 2))
    assert path.parents[3] == Path("/data")


@given(st.text())
def test_names_are_reversible(name: str) -> None:
    assert decode_name(encode_name(name)) == name


@given(st.text(max_size=60), st.binary(min_size=16, max_size=16))
def test_topic_directories_say_name_and_id(name: str, topic: bytes) -> None:
    directory = topic_directory_name(name, TopicId(topic))
    if len(encode_name(name)) <= 200:
        assert parse_topic_directory(directory) == (name, topic)


@pytest.mark.parametrize("name", ["lost+found", "x~short", "x~" + "!" * 22, "readme"])
def test_other_directories_are_not_topics(name: str) -> None:
    parsed = parse_topic_directory(name)
    assert parsed is None


def test_the_folder_scan_finds_every_range_with_its_whole_name(disk: Disk) -> None:
    long_name = "n" * 249
    store = disk.store
    for name, partition, index in [("orders", 0, 0), ("orders", 1, 0), (long_name, 0, 0)]:
        topic = TopicId(name[0].encode() * 16)
        log = store.open_range(
            StreamId(topic, PartitionIndex(partition)), name, index, epoch=EPOCH, start_offset=0
        )
        fill(log, 1)
    (disk.path / "topics" / "stray").mkdir()
    found = [
        (item.name.topic_name, item.name.stream.partition, item.name.index) for item in store.scan()
    ]
    assert sorted(found) == [(long_name, 0, 0), ("orders", 0, 0), ("orders", 1, 0)]
    for item in store.scan():
        header = read_range_header(item.directory)
        assert (header.stream, header.epoch) == (item.name.stream, EPOCH)


def test_a_dropped_topic_is_gone_at_once_and_swept_in_steps(disk: Disk) -> None:
    log = disk.open()
    fill(log, 5)
    other = disk.store.open_range(
        StreamId(TopicId(b"o" * 16), PartitionIndex(0)), "other", 0, epoch=EPOCH, start_offset=0
    )
    kept = fill(other, 2)
    disk.store.drop_topic("orders", TOPIC)
    assert log.closed
    assert [item.name.topic_name for item in disk.store.scan()] == ["other"]
    assert disk.store.sweep(files_max=1)
    while disk.store.sweep(files_max=1):
        pass
    assert len(list((disk.path / "topics").iterdir())) == 1
    assert read_all(other) == kept


def test_what_a_crash_left_of_a_dropped_topic_goes_at_the_next_start(disk: Disk) -> None:
    fill(disk.open(), 5)
    disk.store.drop_topic("orders", TOPIC)
    disk.restart(clean=False)
    assert list(disk.store.scan()) == []
    while disk.store.sweep():
        pass
    assert list((disk.path / "topics").iterdir()) == []


def test_a_range_may_be_dropped_and_made_again_before_the_sweep(disk: Disk) -> None:
    for _ in range(3):
        log = disk.open()
        content = fill(log, 5)
        assert read_all(log) == content
        disk.store.drop_range(log)
    while disk.store.sweep():
        pass
    assert not disk.open().directory.exists()


def test_unfinished_and_other_generations_are_removed(disk: Disk) -> None:
    log = disk.open()
    content = fill(log, 5)
    for name in ("range-0.g1", "range-0.g1.tmp", "range-1.g0"):
        (log.directory.parent / name).mkdir()
    disk.restart()
    log = disk.open()
    while disk.store.sweep():
        pass
    names = sorted(path.name for path in log.directory.parent.iterdir())
    assert names == ["range-0.g0", "range-1.g0"]
    assert read_all(log) == content


def test_a_data_directory_has_one_owner(disk: Disk) -> None:
    with pytest.raises(Unavailable):
        LogStore(disk.path, StoreSettings(), ManualClock())
    disk.stop()
    LogStore(disk.path, StoreSettings(), ManualClock()).close()


def test_the_directory_keeps_its_identity(disk: Disk) -> None:
    first = disk.store.directory_id
    disk.restart()
    assert disk.store.directory_id == first
    disk.stop()
    (disk.path / "directory.id").write_bytes(b"MAINSTEMxx")
    with pytest.raises(Corrupt):
        disk.start()
    disk.alive = False


def test_ranges_of_another_disk_are_refused(disk: Disk) -> None:
    fill(disk.open(), 3)
    disk.stop()
    (disk.path / "directory.id").unlink()
    disk.store = disk.start()
    with pytest.raises(Corrupt):
        disk.open()


def test_trust_depends_on_how_the_last_process_ended(disk: Disk) -> None:
    seen = [disk.store.trust]  # nothing is known about a new directory
    for clean, machine_down in [(True, False), (False, False), (False, True), (True, True)]:
        disk.restart(clean=clean, machine_down=machine_down)
        seen.append(disk.store.trust)
    assert seen == [
        FileTrust.OTHER_BOOT,
        FileTrust.CLEAN,
        FileTrust.SAME_BOOT,
        FileTrust.OTHER_BOOT,
        FileTrust.CLEAN,
    ]


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_that_the_machine_went_down_is_known_until_it_is_noted(disk: Disk, ends: str) -> None:
    disk.kill()
    disk.boot_id = "boot-2"
    for _ in range(3):
        disk.store = disk.start(settle=False)
        assert disk.store.trust is FileTrust.OTHER_BOOT
        disk.kill() if ends == "killed" else disk.stop()
    disk.store = disk.start()
    disk.store.settle()
    disk.kill()
    disk.store = disk.start()
    assert disk.store.trust is FileTrust.SAME_BOOT


def test_an_unknown_boot_is_never_the_same_boot() -> None:
    assert trust_in(Checkpoint("", clean=False, points={}), "") is FileTrust.OTHER_BOOT


def test_a_damaged_checkpoint_means_no_trust(disk: Disk) -> None:
    content = fill(disk.open(), 3)
    disk.stop()
    path = disk.path / "log.checkpoint"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Corrupt):
        load_checkpoint(disk.path)
    disk.store = disk.start()
    assert disk.store.trust is FileTrust.OTHER_BOOT
    assert read_all(disk.open()) == content
