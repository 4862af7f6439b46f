"""A stream that another node writes, read from the replica on this disk.

    batches from the writer ──▶ files ──▶ noted: where transactions start and end
    committed offset from the writer ──▶ readable, with its last stable offset

Guarantees: nothing is visible beyond what the writer, or the catalogue, reported as committed; a
reader of what is not here, or damaged, is sent to the writer. Nothing is done for a replica
without readers; the first reader starts a scan of the open range, a piece at a time.
"""

from mainstem.log.range_log import FileSlice, RangeLog
from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.metadata import Stream
from mainstem.streams.producers.stream_state import StreamState
from mainstem.streams.producers.transactions import StreamTransactions
from mainstem.streams.reading.followed_transactions_driver import FollowedTransactions
from mainstem.streams.reading.stream_reader import StreamReader
from mainstem.streams.replica.driver import ReplicaDriver
from mainstem.streams.writer.replication_driver import not_writer


class StreamFollower(StreamReader):
    """Reads a stream from the replica on this node.

    Args:
        stream: the catalogue's entry of it.
        topic: the topic's name.
        held: the replica of its open range.
        ranges: what is complete here, up to that range, without a gap.
    """

    __slots__ = ("_followed", "held")

    def __init__(
        self, stream: Stream, topic: str, held: ReplicaDriver, ranges: list[RangeLog]
    ) -> None:
        super().__init__(stream, topic)
        self.held = held
        self.hold(ranges)
        known, transactions = _nearest_state(stream, ranges)
        self._followed = FollowedTransactions(held, ranges, known, transactions)
        self.committed = known
        self.last_stable = transactions.stable_until(known)
        self.next_offset = held.log.written_end

    def start(self) -> None:
        """Follow the replica; the existing files are scanned first."""
        self.held.on_committed = self._on_committed
        self._followed.start(
            self._on_scanned, lambda: self.close(not_writer(self.known, self.topic))
        )

    def renew(self, stream: Stream, ranges: list[RangeLog]) -> None:
        """The catalogue's entry of the stream has changed; its open range is the same."""
        self.known = stream
        self.epoch = stream.epoch
        self.start_offset = stream.start
        self.hold(ranges)
        self._followed.ranges = ranges
        self._followed.transactions.trim(stream.start)

    def close(self, reason: MainstemError) -> None:
        """Stop serving readers."""
        self.closed = reason
        self.held.on_committed = None
        self._followed.stop()
        self._wake()

    def read(
        self, offset: int, *, max_bytes: int, committed_only: bool, min_one: bool
    ) -> FileSlice | None:
        """As the writer's; what is not here yet, or not at all, is left to the writer."""
        if self.closed is not None:
            raise self.closed
        self.advance()
        if offset > self.next_offset or self.start_offset <= offset < self.ranges[0].start_offset:
            raise not_writer(self.known, self.topic)
        try:
            return super().read(
                offset, max_bytes=max_bytes, committed_only=committed_only, min_one=min_one
            )
        except Corrupt as damage:
            raise not_writer(self.known, self.topic) from damage

    def aborted_transactions(self, start: int, until: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions with records in [start, until)."""
        return self._followed.transactions.aborted(start, until)

    def advance(self) -> bool:
        """Advance to what was committed meanwhile; whether there was anything."""
        self.next_offset = self.held.log.written_end
        followed = self._followed
        until = followed.reach(self.held.machine.known_committed)
        if until <= self.committed:
            return False
        followed.commit(until)
        self.committed = until
        self.last_stable = followed.transactions.stable_until(until)
        return True

    def _on_committed(self) -> None:
        if self._waiters and self.advance():
            self._wake()

    def _on_scanned(self) -> None:
        if self.advance():
            self._wake()


def _nearest_state(stream: Stream, ranges: list[RangeLog]) -> tuple[int, StreamTransactions]:
    """The last offset where the transactions of a stream are known, and these.

    Raises:
        Unavailable: none is known here.
    """
    for log in reversed(ranges):
        opening = log.opening_snapshot()
        if opening is not None:
            return log.start_offset, StreamState.restore(opening).transactions
    first = ranges[0]
    if first.identity.name.index == 0:
        return first.start_offset, StreamTransactions()
    raise not_writer(stream, str(stream.id))
