"""The log of one node, in memory, and how much of it has reached the disk.

    snapshot ......... committed entries that a file covers
       start | entries ..................................... last
                  applied <= committed         stable <= handed <= last

``handed`` is what storage was asked to keep, ``stable`` what it has kept. Entries of the catalogue
are few and small, and a snapshot takes their place before they become many, so the whole tail is
held here; storage is read only when a node starts.
"""

from collections.abc import Sequence

from mainstem.cluster.raft.messages import DurableState, Entry, EntryId, EntryType, SnapshotMeta

ENTRY_OVERHEAD_BYTES = 32


class RaftLog:
    """Holds the log of a Raft node in memory and tracks what is durable.

    Indexes count from 1; an unknown place has no term.
    """

    __slots__ = (
        "_entries", "applied", "applying", "committed", "handed", "pending_snapshot", "snapshot",
        "stable", "start",
    )  # fmt: skip

    def __init__(self, durable: DurableState) -> None:
        self.snapshot = durable.snapshot
        self.start = durable.start
        self._entries = list(durable.entries)
        self.committed = max(durable.hard_state.commit, durable.snapshot.index)
        self.applied = self.applying = durable.snapshot.index
        self.handed = self.stable = self.last_index
        self.pending_snapshot: SnapshotMeta | None = None
        assert self.start.index <= self.snapshot.index, "entries are missing after the snapshot"
        assert self.committed <= self.last_index, "the log ends before what was committed"

    @property
    def last_index(self) -> int:
        """The index of the last entry."""
        return self.start.index + len(self._entries)

    @property
    def last_id(self) -> EntryId:
        """The last entry."""
        if self._entries:
            return EntryId(self._entries[-1].index, self._entries[-1].term)
        return self.start

    @property
    def first_index(self) -> int:
        """The index of the first entry that is in memory."""
        return self.start.index + 1

    def term(self, index: int) -> int | None:
        """The term of an entry; None when it was dropped or is not there yet."""
        place = index - self.start.index - 1
        if place == -1:
            return self.start.term
        if 0 <= place < len(self._entries):
            return self._entries[place].term
        return None

    def matches(self, entry: EntryId) -> bool:
        """Whether this log holds the entry."""
        return self.term(entry.index) == entry.term

    def is_up_to_date(self, last: EntryId) -> bool:
        """Whether a log that ends with ``last`` holds all that this one may have committed."""
        own = self.last_id
        return (last.term, last.index) >= (own.term, own.index)

    def slice(self, start: int, until: int) -> list[Entry]:
        """The entries from ``start`` to before ``until``."""
        assert self.start.index < start <= until <= self.last_index + 1, "entries that are not here"
        offset = self.start.index + 1
        return self._entries[start - offset : until - offset]

    def page(self, start: int, bytes_max: int) -> tuple[Entry, ...]:
        """Entries from ``start`` on, at least one, until a size is reached."""
        chosen: list[Entry] = []
        size = 0
        offset = self.start.index + 1
        for place in range(start - offset, len(self._entries)):
            entry = self._entries[place]
            size += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if chosen and size > bytes_max:
                break
            chosen.append(entry)
        return tuple(chosen)

    def append(self, entries: Sequence[Entry]) -> None:
        """Put entries at their indexes; existing entries from there on are removed."""
        first = entries[0].index
        assert self.committed < first <= self.last_index + 1, "entries that do not fit"
        if first <= self.last_index:
            del self._entries[first - self.start.index - 1 :]
            self.handed = min(self.handed, first - 1)
            self.stable = min(self.stable, first - 1)
        self._entries.extend(entries)

    def maybe_append(self, previous: EntryId, entries: Sequence[Entry], commit: int) -> int | None:
        """Append a leader's entries; the last index that now matches, or None: logs differ."""
        if not self.matches(previous):
            return None
        last = previous.index + len(entries)
        for place, entry in enumerate(entries):
            if self.term(entry.index) != entry.term:
                assert entry.index > self.committed, "a committed entry would be replaced"
                self.append(entries[place:])
                break
        self.commit_to(min(commit, last))
        return last

    def find_conflict_by_term(self, index: int, term: int) -> EntryId:
        """The last entry at or before ``index`` whose term is not above ``term``: a good guess."""
        while index > 0:
            own = self.term(index)
            if own is None:
                return EntryId(index, 0)
            if own <= term:
                return EntryId(index, own)
            index -= 1
        return EntryId(0, 0)

    def commit_to(self, index: int) -> None:
        """Everything until ``index`` is committed; never goes back."""
        if index > self.committed:
            assert index <= self.last_index, "more is committed than is here"
            self.committed = index

    def restore(self, snapshot: SnapshotMeta) -> None:
        """A leader's snapshot takes the place of the whole log."""
        assert snapshot.index > self.committed, "a snapshot older than the commit index"
        self.snapshot = self.pending_snapshot = snapshot
        self.start = snapshot.id
        self._entries.clear()
        self.committed = self.applied = self.applying = snapshot.index
        self.handed = self.stable = snapshot.index

    def compact(self, snapshot: SnapshotMeta, *, keep: int) -> None:
        """A snapshot of what is applied is durable; drop entries, but for the last ``keep``."""
        if snapshot.index <= self.snapshot.index:
            return
        assert snapshot.index <= self.applied, "a snapshot of what is not applied"
        self.snapshot = snapshot
        index = snapshot.index - keep
        term = self.term(index)
        if index > self.start.index and term is not None:
            del self._entries[: index - self.start.index]
            self.start = EntryId(index, term)

    def next_unstable(self) -> tuple[Entry, ...]:
        """Entries for storage; they count as handed over."""
        entries = self._entries[self.handed - self.start.index :]
        self.handed = self.last_index
        return tuple(entries)

    def stable_to(self, entry: EntryId) -> None:
        """Storage keeps everything until ``entry``, unless it was replaced meanwhile."""
        if entry.index > self.stable and self.matches(entry):
            self.stable = entry.index

    def next_committed(self, bytes_max: int) -> tuple[Entry, ...]:
        """Entries to apply: committed and on this disk; they count as being applied."""
        until = min(self.committed, self.stable)
        if until <= self.applying:
            return ()
        page = self.page(self.applying + 1, bytes_max)[: until - self.applying]
        self.applying += len(page)
        return page

    def has_unapplied_change(self) -> bool:
        """Whether a change of membership is committed but not applied."""
        return _has_change(self.slice(self.applied + 1, self.committed + 1))

    def has_change_after(self, index: int) -> bool:
        """Whether there is a change of membership behind an entry, committed or not."""
        return _has_change(self.slice(index + 1, self.last_index + 1))


def _has_change(entries: Sequence[Entry]) -> bool:
    return any(entry.type is EntryType.EntryConfChange for entry in entries)
