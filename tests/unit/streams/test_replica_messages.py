"""What nodes tell each other about ranges, as bytes."""

import pytest

from mainstem.model.errors import Corrupt
from mainstem.model.ids import Epoch, Offset
from mainstem.streams.replica.messages import (
    Acknowledged,
    AnyMessage,
    AppendBatches,
    AskBatches,
    AskFence,
    AskFolder,
    AskPiece,
    AskState,
    AskTakeOver,
    BatchesReply,
    FolderReply,
    PieceReply,
    Promised,
    RangeKey,
    ReplicaRefused,
    StateReply,
    TakenOver,
    decode,
    encode,
)

KEY = RangeKey(b"t" * 16, 3, 7)
EVERY: list[AnyMessage] = [
    AppendBatches(KEY, Epoch(2), Offset(5), Offset(9), Offset(4), "disk", b"state", to_disk=True),
    AppendBatches(KEY, Epoch(2), Offset(5), Offset(9), Offset(4)),
    Acknowledged(KEY, Epoch(2), Offset(9), Offset(5)),
    ReplicaRefused(KEY, Epoch(2), fenced_by=Epoch(3)),
    ReplicaRefused(KEY, Epoch(2), gap_at=Offset(0)),
    ReplicaRefused(KEY, Epoch(2), sealed_at=Offset(8)),
    AskFence(KEY, Epoch(4), "disk"),
    Promised(KEY, Epoch(4), Offset(9), limbo=True, directory="disk"),
    AskBatches(KEY, 1, Offset(0), Offset(9), 100),
    BatchesReply(KEY, Offset(0), Offset(9), b"state"),
    AskState(KEY),
    StateReply(KEY),
    AskFolder(KEY, 2),
    FolderReply(KEY, [("range.seal", 40)]),
    AskPiece(KEY, 2, "range.seal", 0, 40),
    PieceReply(KEY),
    AskTakeOver(KEY, 2, Epoch(1), Offset(0), 3),
    TakenOver(KEY),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda one: type(one).__name__)
def test_a_message_comes_out_as_it_went_in_and_batches_follow_it(message: AnyMessage) -> None:
    body = memoryview(encode(message) + b"batches")

    found, batches = decode(body)

    assert found == message
    assert bytes(batches) == b"batches"


@pytest.mark.parametrize("cut", [0, 3, 4, 10])
def test_a_message_that_is_cut_short_is_refused(cut: int) -> None:
    whole = encode(EVERY[0])

    with pytest.raises(Corrupt):
        decode(memoryview(whole[:cut]))


def test_bytes_of_something_else_are_refused() -> None:
    with pytest.raises(Corrupt):
        decode(memoryview(b"\x00\x00\x00\x02hi"))


def test_a_key_names_its_stream() -> None:
    assert (KEY.stream.topic, KEY.stream.partition) == (b"t" * 16, 3)
