"""Raft's bytes: whatever is written is read again, whatever is damaged is refused."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.cluster.raft.messages import (
    ConfChange,
    ConfChangeType,
    ConfState,
    Entry,
    EntryId,
    EntryType,
    HardState,
    MessageType,
    RaftMessage,
    SnapshotMeta,
    decode_change,
    decode_message,
    encode_change,
    encode_message,
)
from mainstem.cluster.raft.persistence.wal_storage import WalFrame, WalStorage
from mainstem.model.errors import Corrupt
from mainstem.model.ids import NodeId

NUMBERS = st.integers(0, 2**63 - 1)
NODES = st.integers(0, 2**31).map(NodeId)
CONFS = st.builds(
    ConfState,
    st.lists(NODES, max_size=5).map(tuple),
    st.lists(NODES, max_size=3).map(tuple),
)
METAS = st.builds(SnapshotMeta, NUMBERS, NUMBERS, CONFS)


@st.composite
def messages(draw: st.DrawFn) -> RaftMessage:
    index, log_term = draw(st.integers(0, 2**40)), draw(st.integers(0, 100))
    terms = sorted(draw(st.lists(st.integers(log_term, 200), max_size=4)))
    entries = tuple(
        Entry(term, place, data=draw(st.binary(max_size=20)))
        for place, term in enumerate(terms, start=index + 1)
    )
    kind = draw(st.sampled_from(MessageType))
    needs_snapshot = kind in (MessageType.MsgSnap, MessageType.MsgSnapChunk)
    return RaftMessage(
        kind,
        draw(NODES),
        draw(NODES),
        draw(st.integers(200, 2**40)),
        index=index,
        log_term=log_term,
        entries=entries,
        commit=draw(NUMBERS),
        reject=draw(st.booleans()),
        reject_hint=draw(NUMBERS),
        context=draw(NUMBERS),
        snapshot=draw(METAS if needs_snapshot else st.none() | METAS),
        position=draw(NUMBERS),
        total_bytes=draw(NUMBERS),
        data=draw(st.binary(max_size=30)),
    )


@given(messages())
def test_a_message_arrives_as_it_was_sent(message: RaftMessage) -> None:
    assert decode_message(encode_message(message)) == message


@given(st.sampled_from(ConfChangeType), NODES)
def test_a_change_is_read_as_it_was_written(kind: ConfChangeType, node: NodeId) -> None:
    change = ConfChange(kind, node)
    assert decode_change(encode_change(change)) == change


@given(messages(), st.data())
@settings(max_examples=200)
def test_altered_bytes_are_a_message_or_refused_and_nothing_else(
    message: RaftMessage, data: st.DataObject
) -> None:
    encoded = bytearray(encode_message(message))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(encoded) - 1))
        encoded[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for attempt in (bytes(encoded), bytes(encoded[:cut])):
        try:
            assert isinstance(decode_message(attempt), RaftMessage)
        except Corrupt:
            continue


@pytest.mark.parametrize(
    "message",
    [
        RaftMessage(MessageType.MsgApp, NodeId(1), NodeId(2), 3, index=5, entries=(Entry(1, 7),)),
        RaftMessage(MessageType.MsgApp, NodeId(1), NodeId(2), 3, index=5, entries=(Entry(4, 6),)),
        RaftMessage(
            MessageType.MsgApp, NodeId(1), NodeId(2), 3, log_term=2, entries=(Entry(1, 1),)
        ),
        RaftMessage(MessageType.MsgSnap, NodeId(1), NodeId(2), 3),
        RaftMessage(MessageType.MsgApp, NodeId(1), NodeId(2), -1),
        RaftMessage(
            MessageType.MsgApp,
            NodeId(1),
            NodeId(2),
            3,
            entries=(Entry(1, 1, EntryType.EntryConfChange, b"?"),),
        ),
    ],
)
def test_what_no_sound_node_says_is_refused(message: RaftMessage) -> None:
    with pytest.raises(Corrupt):
        decode_message(encode_message(message))


@st.composite
def histories(draw: st.DrawFn) -> list[WalFrame]:
    """Writes as a core asks for them: entries follow each other or replace an end."""
    frames = []
    last = 0
    for term in range(1, draw(st.integers(2, 8))):
        first = draw(st.integers(max(1, last - 3), last + 1))
        count = draw(st.integers(0, 4))
        entries = tuple(
            Entry(term, index, data=draw(st.binary(max_size=40)))
            for index in range(first, first + count)
        )
        vote = NodeId(draw(st.integers(-1, 5)))
        hard_state = HardState(term, vote, 0) if not entries or draw(st.booleans()) else None
        start = None
        if draw(st.integers(0, 9)) == 0:
            last = last + draw(st.integers(1, 9))
            start, entries = EntryId(last, term), ()
        elif entries:
            last = entries[-1].index
        frames.append(WalFrame(hard_state, start, entries))
    return frames


class Model:
    """What a log holds after some frames, in a few lines."""

    def __init__(self, frames: list[WalFrame]) -> None:
        self.hard_state = HardState()
        self.start: EntryId | None = None
        entries: dict[int, Entry] = {}
        for frame in frames:
            self.hard_state = frame.hard_state or self.hard_state
            if frame.start is not None:
                self.start = frame.start
                entries = {}
            if frame.entries:
                first = frame.entries[0].index
                entries = {index: entry for index, entry in entries.items() if index < first}
                entries |= {entry.index: entry for entry in frame.entries}
        self.entries = list(entries.values())

    def holds(self, found: tuple[HardState, EntryId | None, list[Entry]]) -> bool:
        return found == (self.hard_state, self.start, self.entries)


@given(histories(), st.integers(1, 400), st.data())
@settings(max_examples=60, deadline=None)
def test_a_crash_at_any_byte_leaves_whole_writes_and_every_one_that_was_synced(
    frames: list[WalFrame], segment_bytes: int, data: st.DataObject
) -> None:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="wal-", dir=memory if memory.is_dir() else None))
    try:
        wal = WalStorage(folder, segment_bytes=segment_bytes, sync=lambda _: None)
        wal.open()
        for frame in frames[:-1]:
            wal.append(frame)
        before = {path.name: path.read_bytes() for path in folder.glob("*.wal")}
        wal.append(frames[-1])
        wal.close()
        # The last write was under way: some of its bytes are there, the mark is the old one.
        path = max(folder.glob("*.wal"))
        whole = path.read_bytes()
        old = before.get(path.name)
        if old is None:  # it went into a new file, which is there or not
            path.unlink()
            cut = 0
        else:
            cut = data.draw(st.integers(len(old), len(whole) - 1))
            path.write_bytes(old + whole[len(old) : cut])
        again = WalStorage(folder, segment_bytes=segment_bytes, sync=lambda _: None)
        assert Model(frames[:-1]).holds(again.open())
        again.append(frames[-1])
        again.close()
        once_more = WalStorage(folder, sync=lambda _: None)
        assert Model(frames).holds(once_more.open())
        once_more.close()
    finally:
        shutil.rmtree(folder)


@given(histories(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_flipped_bit_in_a_synced_log_is_never_read_as_something_else(
    frames: list[WalFrame], data: st.DataObject
) -> None:
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="wal-", dir=memory if memory.is_dir() else None))
    try:
        wal = WalStorage(folder, segment_bytes=200, sync=lambda _: None)
        wal.open()
        for frame in frames:
            wal.append(frame)
        wal.close()
        path = data.draw(st.sampled_from(sorted(folder.glob("*.wal"))))
        content = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        with pytest.raises(Corrupt):
            WalStorage(folder, sync=lambda _: None).open()
    finally:
        shutil.rmtree(folder)
