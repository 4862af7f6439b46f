"""docs/reference/formats.md is true of Raft's folder: a decoder built from it reads it."""

from pathlib import Path

from tests.formats import raft_decoder

from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    ConfState,
    Entry,
    EntryType,
    HardState,
    SnapshotMeta,
    encode_change,
    initial_state,
)
from mainstem.cluster.raft.persistence.raft_storage import RaftStorage
from mainstem.model.ids import NodeId

ONE, TWO = NodeId(1), NodeId(2)


def test_every_file_of_a_raft_node_is_decoded(tmp_path: Path) -> None:
    storage = RaftStorage(tmp_path)
    storage.open(initial_state((ONE, TWO)))
    change = encode_change(ConfChange(ConfChangeType.ConfChangeAddLearnerNode, NodeId(7)))
    entries = (Entry(3, 2, data=b"x"), Entry(3, 3, EntryType.EntryConfChange, change))
    storage.save_now(HardState(3, TWO, 1), entries)
    storage.save_snapshot_now(SnapshotMeta(3, 3, ConfState((ONE, TWO), (NodeId(7),))), b"state")
    storage.close_now()
    [snapshot] = tmp_path.glob("*.snap")
    assert snapshot.name == "snapshot-00000000000000000003.snap"
    assert raft_decoder.decode(snapshot) == {
        "index": 3,
        "term": 3,
        "members": [[1, 2], [7]],
        "state": b"state",
    }
    [log] = tmp_path.glob("*.wal")
    assert log.name == "00000000000000000001.wal"
    decoded = raft_decoder.decode(log)
    assert decoded["durable"] == log.stat().st_size
    assert decoded["frames"][0]["state"] == [0, -1, 0]
    assert decoded["frames"][1] == {
        "number": 2,
        "state": [1, -1, 1],
        "start": [1, 1],
        "entries": [],
    }
    assert decoded["frames"][2]["state"] == [3, 2, 1]
    assert decoded["frames"][2]["entries"] == [[3, 2, 0, b"x"], [3, 3, 1, b"\x92\x02\x07"]]


def test_the_decoder_of_raft_stands_alone() -> None:
    source = Path(raft_decoder.__file__).read_text()
    assert "mainstem" not in source
