"""A file of a later version is refused with a sentence and left as it is, whatever kind it is."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer
from crc32c import crc32c

from mainstem.log.disk.checked_file import write_checked
from mainstem.log.verification.data_directory import verify_data_dir
from mainstem.model.errors import UnknownVersion
from mainstem.model.ids import Epoch, RangeIndex
from mainstem.model.release import RELEASE
from mainstem.placement.persistence.export_storage import read_export
from mainstem.placement.persistence.journal_storage import JournalStorage
from mainstem.streams.replica.promise_storage import Promise
from mainstem.testing.local_cluster import SECRET_NAME, LocalCluster, MemberNode
from mainstem.testing.server_process import ServerFailed

Bump = Callable[[Path], None]
FIRST = "topics/*/partition-0/range-0.g0"
SECOND = "topics/*/partition-0/range-1.g0"


def small_file(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[10:12] = (2).to_bytes(2)
    data[16:20] = crc32c(bytes(data[20:]), crc32c(bytes(data[8:16]))).to_bytes(4)
    path.write_bytes(data)


def index(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[7:8] = b"2"
    data[56:60] = crc32c(bytes(data[:56])).to_bytes(4)
    path.write_bytes(data)


def frames(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[7:8] = b"2"
    data[16:20] = crc32c(bytes(data[:16])).to_bytes(4)
    path.write_bytes(data)


def snapshot(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[7:8] = b"2"
    data[24:28] = crc32c(bytes(data[32:]), crc32c(bytes(data[:24]))).to_bytes(4)
    path.write_bytes(data)


def raft_snapshot(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[7:8] = b"2"
    path.write_bytes(data)


def signed(path: Path) -> None:
    document = json.loads(path.read_bytes())
    [member] = set(document) - {"checksum"}
    later = {"version": document[member]["version"] + 1, "something": ["new"]}
    document[member] = {**document[member], **later}
    document["checksum"] = f"{crc32c(msgspec.json.encode(document[member])):08x}"
    path.write_bytes(msgspec.json.encode(document))


def address_book(path: Path) -> None:
    path.write_bytes(b'{"version": 2, "nodes": [{"id": 2}]}')


AT_START: list[tuple[str, Bump]] = [
    ("node.json", signed),
    ("peers.json", address_book),
    ("directory.id", small_file),
    ("log.checkpoint", small_file),
    ("producers.checkpoint", small_file),
    (f"{SECOND}/range.header", small_file),  # also the version of the batches in its logs
    (f"{FIRST}/range.seal", small_file),
    (f"{FIRST}/*.index", index),
    ("raft/*.wal", frames),
    ("raft/*.snap", raft_snapshot),
]

WHEN_READ: list[tuple[str, Bump]] = [
    ("topics/*/topic.header", small_file),
    (f"{SECOND}/opening.snapshot", small_file),
    (f"{FIRST}/*.timeindex", index),
    (f"{FIRST}/compaction.mark", small_file),
]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The data of a node of a cluster that was started twice and has stopped."""
    with LocalCluster(1) as cluster:
        node = cluster.nodes[1]
        for _ in range(2):
            producer = Producer(
                {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True}
            )
            for number in range(200):
                producer.produce("t", str(number), str(number % 5))
            assert producer.flush(60) == 0
            del producer
            assert node.stop() == 0
            node.start(timeout_s=120)
        assert node.stop() == 0
        [first] = node.data_dir.glob(FIRST)
        write_checked(first / "compaction.mark", b"CM", bytes(16), sync=False)
        yield node.data_dir


def bumped(folder: Path, place: str, bump: Bump) -> tuple[Path, bytes]:
    """The file, of a later version now, and its bytes."""
    path = sorted(folder.glob(place))[0] if "*" in place else folder / place
    bump(path)
    return path, path.read_bytes()


@pytest.mark.parametrize(("place", "bump"), AT_START, ids=[place for place, _ in AT_START])
def test_a_node_does_not_start_on_a_file_of_a_later_version(
    folder: Path, tmp_path: Path, place: str, bump: Bump
) -> None:
    copy = tmp_path / folder.name
    shutil.copytree(folder, copy)
    shutil.copy(folder.parent / SECRET_NAME, tmp_path)
    path, before = bumped(copy, place, bump)
    node = MemberNode(1, tmp_path, [])
    try:
        with pytest.raises(ServerFailed):
            node.start(timeout_s=120)
        said = node.log_text()
    finally:
        node.close()
    assert f"UNSUPPORTED_VERSION [{path}]" in said
    found, known = ("3", "1 to 2") if place == "node.json" else ("2", "1")
    assert f"of version {found}, and mainstem {RELEASE} reads version {known} " in said
    assert "start the release that wrote it, or a later one" in said
    assert "Traceback" not in said
    assert path.read_bytes() == before


@pytest.mark.parametrize(("place", "bump"), WHEN_READ, ids=[place for place, _ in WHEN_READ])
def test_who_reads_a_file_of_a_later_version_refuses_it(
    folder: Path, tmp_path: Path, place: str, bump: Bump
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(folder, copy)
    path, before = bumped(copy, place, bump)
    with pytest.raises(UnknownVersion, match="of version 2") as refused:
        verify_data_dir(copy)
    assert refused.value.subject == str(path)
    assert path.read_bytes() == before


def test_an_export_of_a_later_version_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "topic_metadata.json", tmp_path)
    path, before = bumped(tmp_path, "topic_metadata.json", signed)
    with pytest.raises(UnknownVersion, match="of version 2"):
        read_export(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["promised.epoch", "limbo.ranges"])
def test_a_promise_of_a_later_version_is_refused(tmp_path: Path, name: str) -> None:
    promise = Promise(tmp_path)
    promise.store(Epoch(3))
    promise.set_limbo(RangeIndex(1), is_in_limbo=True)
    small_file(tmp_path / name)
    with pytest.raises(UnknownVersion, match="of version 2") as refused:
        Promise(tmp_path)
    assert refused.value.subject == str(tmp_path / name)


@pytest.mark.parametrize(("name", "bump"), [("journal", frames), ("snapshot", snapshot)])
def test_a_catalogue_of_a_later_version_is_refused(tmp_path: Path, name: str, bump: Bump) -> None:
    journal = JournalStorage(tmp_path)
    journal.open()
    journal.append_now(b"{}")
    journal.snapshot_now(b"{}")
    journal.close()
    path, before = bumped(tmp_path, name, bump)
    with pytest.raises(UnknownVersion, match="of version 2") as refused:
        JournalStorage(tmp_path).open()
    assert refused.value.subject == str(path)
    assert path.read_bytes() == before
