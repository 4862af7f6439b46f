"""What the writer of a range sends to its replicas: the batches, and what is committed.

Guarantees: batches that were just flushed are copied once for all replicas; others are read from
the writer's own files, in pieces; replicas that could not be sent to are in ``undelivered``.
"""

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from mainstem.cluster.peers.frames import Chunk, PeerService
from mainstem.log.range_log import RangeLog, StagedBatch
from mainstem.model.errors import Corrupt, Unavailable
from mainstem.model.ids import Epoch, NodeId, Offset
from mainstem.model.limits import MIB
from mainstem.model.metadata import Range, Stream
from mainstem.streams.context import StreamsContext, directory_of
from mainstem.streams.replica.messages import AppendBatches, encode, key_of
from mainstem.streams.writer.replication import ReplicaProgress, SendAppend

# Connections keep buffers for frames of up to 1 MiB; larger ones are allocated each time.
PIECE_BYTES_MAX: Final = 3 * MIB // 4

_log = logging.getLogger(__name__)


class _Piece(NamedTuple):
    """Batches that are sent together."""

    start: Offset
    until: Offset
    batches: bytes


class RangeSender:
    """Sends batches and the committed offset to the replicas of a range.

    Args:
        context: the services of the node.
        stream: the stream.
        range_info: its open range.
        log: the writer's own files.
        opening: the state of the stream where the range starts.
    """

    def __init__(
        self,
        context: StreamsContext,
        stream: Stream,
        range_info: Range,
        log: RangeLog,
        opening: bytes,
    ) -> None:
        self.key = key_of(stream.id, range_info.index)
        self.undelivered: set[NodeId] = set()
        self._context = context
        self._range_info = range_info
        self._epoch: Epoch = stream.epoch
        self._log = log
        self._opening = opening
        self._directories = {node: directory_of(range_info, node) for node in range_info.replicas}
        self._sent_committed: dict[NodeId, Offset] = {}
        self._burst: list[StagedBatch] = []
        self._pieces: list[_Piece] = []

    def begin_burst(self, staged: list[StagedBatch]) -> None:
        """These batches were flushed just now; they are borrowed until ``end_burst``."""
        self._burst = staged

    def end_burst(self) -> None:
        """Release the borrowed batches."""
        self._burst, self._pieces = [], []

    def send(self, send: SendAppend) -> None:
        """Send batches to a replica."""
        if send.replica == self._context.node:
            return  # its own files had it first
        burst = self._burst
        if burst and (send.start, send.until) == (burst[0][1], burst[-1][2]):
            self._pieces = self._pieces or list(_pieces(burst))
            for piece in self._pieces:
                self._note(send, *piece)
            return
        at = send.start
        try:
            while at < send.until:
                part = self._log.read(at, max_bytes=PIECE_BYTES_MAX, until=send.until, min_one=True)
                assert part is not None, "what is sent is in the files"
                until = Offset(part.until_offset)
                self._note(send, at, until, part.read())
                at = until
        except Corrupt as error:
            # The replica stays behind and the range is rolled without it.
            self._context.flusher.metrics.log_corruptions += 1
            _log.error("range %d cannot be sent: %s", self._range_info.index, error)
        except Unavailable as error:
            _log.warning("range %d cannot be sent now: %s", self._range_info.index, error)

    def send_committed(self, progress: list[ReplicaProgress], committed: Offset) -> None:
        """Send what is committed by itself, to replicas that get no further batches."""
        for one in progress:
            known = self._sent_committed.get(one.replica, self._range_info.start)
            if one.replica != self._context.node and known < committed <= one.end:
                send = SendAppend(one.replica, one.end, one.end, committed)
                self._note(send, one.end, one.end, b"")

    def _note(self, send: SendAppend, start: Offset, until: Offset, batches: Chunk) -> None:
        node = send.replica
        message = AppendBatches(
            self.key,
            self._epoch,
            start,
            until,
            send.committed,
            directory=self._directories[node],
            opening=self._opening if start == self._range_info.start else None,
        )
        if self._context.peers.note(node, PeerService.RANGES, [encode(message), batches]):
            self._sent_committed[node] = send.committed
        else:
            self.undelivered.add(node)


def _pieces(burst: list[StagedBatch]) -> Iterator[_Piece]:
    """Copies of the batches, several of them together."""
    views: list[Chunk] = []
    start, size = Offset(burst[0][1]), 0
    for view, base, _, _ in burst:
        if views and size + len(view) > PIECE_BYTES_MAX:
            yield _Piece(start, Offset(base), b"".join(views))
            views, start, size = [], Offset(base), 0
        views.append(view)
        size += len(view)
    yield _Piece(start, Offset(burst[-1][2]), b"".join(views))
