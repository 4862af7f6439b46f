"""What a writer sends to its replicas."""

from types import SimpleNamespace
from typing import Any

from mainstem.cluster.peers.frames import SPARE_BYTES_MAX
from mainstem.log.range_log import StagedBatch
from mainstem.model.ids import Epoch, NodeId, Offset, PartitionIndex, RangeIndex, StreamId, TopicId
from mainstem.model.metadata import Range, Stream
from mainstem.streams.replica.messages import AppendBatches, decode
from mainstem.streams.writer.replication import SendAppend
from mainstem.streams.writer.sender_driver import RangeSender

OWN, ONE, OTHER = NodeId(1), NodeId(2), NodeId(3)


class Peers:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: dict[NodeId, list[tuple[AppendBatches, bytes]]] = {}

    def note(self, node: NodeId, _service: object, chunks: list[Any]) -> bool:
        message, batches = decode(memoryview(b"".join(chunks)))
        assert isinstance(message, AppendBatches)
        self.sent.setdefault(node, []).append((message, bytes(batches)))
        return True


def burst_of(sizes: list[int]) -> list[StagedBatch]:
    """Batches of one record each, of these sizes."""
    return [
        (memoryview(bytes([at]) * size), 100 + at, 101 + at, 0) for at, size in enumerate(sizes)
    ]


def test_a_large_burst_goes_in_pieces_that_connections_have_buffers_for() -> None:
    peers = Peers()
    around: Any = SimpleNamespace(node=OWN, peers=peers)
    no_files: Any = None
    range_info = Range(RangeIndex(0), Offset(0), Epoch(1), (OWN, ONE, OTHER))
    stream = Stream(
        StreamId(TopicId(bytes(16)), PartitionIndex(0)), Epoch(1), OWN, Offset(0), (range_info,)
    )
    sender = RangeSender(around, stream, range_info, no_files, b"")
    sizes = [60_000] * 40 + [2_000_000] + [60_000] * 3

    burst = burst_of(sizes)
    sender.begin_burst(burst)
    for node in (OWN, ONE, OTHER):
        sender.send(SendAppend(node, Offset(100), Offset(100 + len(sizes)), Offset(100)))
    sender.end_burst()

    assert peers.sent.keys() == {ONE, OTHER}
    for sent in peers.sent.values():
        assert b"".join(batches for _, batches in sent) == b"".join(view for view, *_ in burst)
        spans = [(message.start, message.until) for message, _ in sent]
        assert [start for start, _ in spans] == [100, *(until for _, until in spans[:-1])]
        assert spans[-1][1] == 100 + len(sizes)
        large = [len(batches) for _, batches in sent if len(batches) > SPARE_BYTES_MAX]
        assert large == [2_000_000]  # one batch cannot be cut
        assert len(sent) == 6
