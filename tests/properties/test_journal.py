"""Whatever a power cut leaves of the last frame, the journal holds all that was acknowledged."""

import tempfile
from pathlib import Path

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.cluster.frame_storage import MARK
from mainstem.placement.persistence.journal_storage import JournalStorage, StoredJournal

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.binary(max_size=40)),
        st.tuples(st.just("snapshot"), st.binary(max_size=40)),
        st.tuples(st.just("reopen"), st.just(b"")),
    ),
    max_size=20,
)


def reopened(folder: Path) -> StoredJournal:
    journal = JournalStorage(folder)
    try:
        return journal.open()
    finally:
        journal.close()


def run(folder: Path, steps: list[tuple[str, bytes]]) -> tuple[bytes | None, list[bytes]]:
    """Carry the steps out; what a reader must find then."""
    snapshot: bytes | None = None
    frames: list[bytes] = []
    journal = JournalStorage(folder)
    journal.open()
    for step, payload in steps:
        if step == "append":
            journal.append_now(payload)
            frames.append(payload)
        elif step == "snapshot":
            journal.snapshot_now(payload)
            snapshot, frames = payload, []
        else:
            journal.close()
            journal = JournalStorage(folder)
            stored = journal.open()
            assert (stored.snapshot, list(stored.frames)) == (snapshot, frames)
    journal.close()
    return snapshot, frames


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_a_reader_finds_what_was_written(steps: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        snapshot, frames = run(Path(folder), steps)
        stored = reopened(Path(folder))
        assert (stored.snapshot, list(stored.frames)) == (snapshot, frames)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, last=st.binary(max_size=60), data=st.data())
def test_what_a_power_cut_leaves_of_the_last_frame_is_cut_or_whole(
    steps: list[tuple[str, bytes]], last: bytes, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        snapshot, frames = run(folder, steps)
        path = folder / "journal"
        position = path.stat().st_size
        journal = JournalStorage(folder)
        journal.open()
        journal.append_now(last)
        journal.close()
        whole = bytearray(path.read_bytes())
        frame = bytes(whole[position:])
        # The mark was not yet written, and any part of the frame may hold anything.
        mark = MARK.pack(position, crc32c(position.to_bytes(8, "big")))
        whole[32 : 32 + MARK.size] = mark
        length = data.draw(st.integers(position, len(whole)), label="length of the file")
        del whole[length:]
        for at in data.draw(st.lists(st.integers(position, max(position, length - 1)), max_size=8)):
            if at < length:
                whole[at] = data.draw(st.integers(0, 255))
        path.write_bytes(whole)
        stored = reopened(folder)
        assert stored.snapshot == snapshot
        found = list(stored.frames)
        assert found == ([*frames, last] if whole[position:] == frame else frames)
        again = reopened(folder)
        assert (again.cut_bytes, list(again.frames)) == (0, found)
