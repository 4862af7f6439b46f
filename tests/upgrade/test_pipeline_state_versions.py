"""State of pipelines of a later version is refused and left as it is; without one it is read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mainstem.model.errors import UnknownVersion
from mainstem.model.release import RELEASE
from mainstem.pipelines.cdc.incremental_snapshot import IncrementalSnapshotQueue
from mainstem.pipelines.cdc.mysql import snapshot as mysql_snapshot
from mainstem.pipelines.cdc.mysql.offset import BinlogPosition
from mainstem.pipelines.cdc.postgres import snapshot as postgres_snapshot
from mainstem.pipelines.cdc.spool import save_state
from mainstem.pipelines.connector.batches import BatchIdentity
from mainstem.pipelines.connector.progress import SourceProgress, read_progress, write_progress
from mainstem.pipelines.object_store.sink import Manifest, Manifests
from mainstem.pipelines.object_store.stores import FolderStore
from mainstem.pipelines.running.dead_letter_topic import (
    RefusedDigests,
    read_refused_digests,
    write_refused_digests,
)
from mainstem.pipelines.running.state_folder import StateFolder
from mainstem.pipelines.running.status import Status, read_status, write_status
from mainstem.pipelines.spark.writing.ledger import LedgerEntry, entry_of, entry_value


class Kept(NamedTuple):
    """A kind of file: its name, how it is written and how it is read."""

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], object]


def enter(folder: Path) -> None:
    with StateFolder(folder):
        pass


def queue(folder: Path) -> None:
    IncrementalSnapshotQueue(folder, 0)._save()


def decide(folder: Path) -> None:
    Manifests(FolderStore(folder), BatchIdentity("q", 3)).decide(Manifest([("a", "b")], 1))


def record(folder: Path) -> None:
    (folder / "ledger").write_bytes(entry_value(LedgerEntry(7, ())))


def status() -> Status:
    return Status(pid=1, file="f", started_at=0, updated_at=0, pipelines=())


MYSQL = mysql_snapshot.MysqlSnapshotState(tables=["t"], spot=BinlogPosition(), server="s", gtid="")
POSTGRES = postgres_snapshot.PostgresSnapshotState(tables=["t"], slot_lsn=1)
PROGRESS = SourceProgress(what="snapshot", done=1)
KINDS = {
    "folder": Kept("version.json", enter, enter),
    "status": Kept("status.json", lambda to: write_status(to, status()), read_status),
    "progress": Kept("progress.json", lambda to: write_progress(to, PROGRESS), read_progress),
    "refused": Kept(
        "refused.json",
        lambda to: write_refused_digests(to, RefusedDigests("b", ("d",))),
        read_refused_digests,
    ),
    "mysql snapshot": Kept(
        "snapshot.json", lambda to: save_state(to, MYSQL), mysql_snapshot.load_state
    ),
    "postgres snapshot": Kept(
        "snapshot.json",
        lambda to: save_state(to, POSTGRES),
        postgres_snapshot.load_state,
    ),
    "increment": Kept("increment.json", queue, lambda at: IncrementalSnapshotQueue(at, 0)._state),
    "manifest": Kept(
        "_mainstem/batches/q/3.json",
        decide,
        lambda at: Manifests(FolderStore(at), BatchIdentity("q", 3)).read(),
    ),
    "ledger": Kept("ledger", record, lambda at: entry_of((at / "ledger").read_bytes())),
}


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))
    return path.read_bytes()


@pytest.mark.parametrize("kind", KINDS)
def test_state_of_a_later_version_is_refused_and_left_as_it_is(kind: str, tmp_path: Path) -> None:
    kept = KINDS[kind]
    kept.write(tmp_path)
    path = tmp_path / kept.name
    assert json.loads(path.read_bytes())["version"] == 1

    def later(document: dict[str, Any]) -> None:
        document.clear()  # nothing but the version is where it was
        document.update(version=2, something=["new"])

    before = changed(path, later)
    with pytest.raises(UnknownVersion) as refused:
        kept.read(tmp_path)
    said = str(refused.value)
    assert f"of version 2, and mainstem {RELEASE} reads version 1" in said
    assert "start the release that wrote it, or a later one" in said
    assert refused.value.subject.endswith(kept.name.rpartition("/")[2])
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", KINDS)
def test_state_without_a_version_is_read_as_the_first_one(kind: str, tmp_path: Path) -> None:
    kept = KINDS[kind]
    kept.write(tmp_path)
    now = kept.read(tmp_path)
    changed(tmp_path / kept.name, lambda document: document.pop("version"))
    assert kept.read(tmp_path) == now


def test_a_state_folder_of_an_earlier_release_is_used_and_marked(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / "checkpoints").mkdir()
    enter(tmp_path)
    assert json.loads((tmp_path / "version.json").read_bytes()) == {"version": 1}
