"""Messages between the writer of a range and its replicas, as bytes.

    length of the header   header (one kind of message)   batches, as they are stored
    4 bytes                msgpack                        the rest

Pure. Batches are never packed: they are sent as the chunks they are, and received as a view of the
buffer. Every message names the range it is about, so that one that comes late, or for a range
that was dropped, is recognised.
"""

from struct import Struct as Layout
from typing import Final

import msgspec

from mainstem.model.decode_errors import DECODE_ERRORS
from mainstem.model.errors import Corrupt
from mainstem.model.ids import Epoch, Offset, PartitionIndex, RangeIndex, StreamId, TopicId

_LENGTH: Final = Layout(">I")


class RangeKey(msgspec.Struct, frozen=True, array_like=True):
    """Which range of which stream."""

    topic: bytes
    partition: int
    index: int

    @property
    def stream(self) -> StreamId:
        """The stream."""
        return StreamId(TopicId(self.topic), PartitionIndex(self.partition))


def key_of(stream: StreamId, index: RangeIndex) -> RangeKey:
    """The key of a range in messages between nodes."""
    return RangeKey(bytes(stream.topic), stream.partition, index)


class RangeMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Base of all messages about a range."""

    key: RangeKey


class AppendBatches(RangeMessage, frozen=True):
    """The batches of [start, until) follow, from the writer of ``epoch``.

    ``directory`` names the disk that the range was assigned to; empty: any. ``opening`` is the
    state of the stream where the range starts; it comes with the first batches. ``to_disk``: a
    recovery counts copies on disk, whatever the flush policy.
    """

    epoch: Epoch
    start: Offset
    until: Offset
    committed: Offset
    directory: str = ""
    opening: bytes | None = None
    to_disk: bool = False


class Acknowledged(RangeMessage, frozen=True):
    """To the writer of ``epoch``: all below ``end`` is held, below ``synced`` on disk."""

    epoch: Epoch
    end: Offset
    synced: Offset


class ReplicaRefused(RangeMessage, frozen=True, tag="Refused"):
    """To the writer of ``epoch``; exactly one of the others is set."""

    epoch: Epoch
    fenced_by: Epoch | None = None
    gap_at: Offset | None = None
    sealed_at: Offset | None = None


class AskFence(RangeMessage, frozen=True):
    """A new writer requests a promise and the end."""

    epoch: Epoch
    directory: str = ""


class Promised(RangeMessage, frozen=True):
    """The promise and the end of the replica; see ``state_machine.FenceAnswer``."""

    epoch: Epoch
    end: Offset
    limbo: bool
    directory: str


class AskBatches(RangeMessage, frozen=True):
    """Batches from ``start`` on, about ``bytes_max`` of them, none beyond ``until``."""

    generation: int
    start: Offset
    until: Offset
    bytes_max: int


class BatchesReply(RangeMessage, frozen=True, tag="Batches"):
    """The batches of [start, until) follow; ``start == until``: there are none left.

    ``opening`` comes with the first batches of a range, as in ``AppendBatches``.
    """

    start: Offset
    until: Offset
    opening: bytes | None = None


class AskState(RangeMessage, frozen=True):
    """Request for the state of producers and transactions where the range starts."""


class StateReply(RangeMessage, frozen=True, tag="State"):
    """The state follows."""


class AskFolder(RangeMessage, frozen=True):
    """Request for the names of the files of a rewritten range."""

    generation: int


class FolderReply(RangeMessage, frozen=True, tag="Folder"):
    """Names and sizes; the header is the receiver's own."""

    files: list[tuple[str, int]]


class AskPiece(RangeMessage, frozen=True):
    """Request for bytes of one of those files."""

    generation: int
    name: str
    position: int
    size: int


class PieceReply(RangeMessage, frozen=True, tag="Piece"):
    """The bytes follow."""


class AskTakeOver(RangeMessage, frozen=True):
    """Copy a rewritten range from ``source``, which the catalogue does not list yet.

    ``epoch`` and ``start`` are those of the range.
    """

    generation: int
    epoch: Epoch
    start: Offset
    source: int


class TakenOver(RangeMessage, frozen=True):
    """The rewritten range is on disk here."""


AnyMessage = (
    AppendBatches | Acknowledged | ReplicaRefused | AskFence | Promised | AskBatches | BatchesReply
    | AskState | StateReply | AskFolder | FolderReply | AskPiece | PieceReply | AskTakeOver
    | TakenOver
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: AnyMessage) -> bytes:
    """The first chunk of a message; batches follow it as they are."""
    header = _encoder.encode(message)
    return _LENGTH.pack(len(header)) + header


def decode(body: memoryview) -> tuple[AnyMessage, memoryview]:
    """A message and the batches that came with it.

    Raises:
        Corrupt: these are not the bytes of a message.
    """
    if len(body) < _LENGTH.size:
        raise Corrupt(f"a message of {len(body)} bytes about a range")
    (length,) = _LENGTH.unpack_from(body)
    until = _LENGTH.size + length
    if until > len(body):
        raise Corrupt(f"a message of {len(body)} bytes whose header has {length}")
    try:
        return _decoder.decode(body[_LENGTH.size : until]), body[until:]
    except DECODE_ERRORS as error:
        raise Corrupt(f"not a message about a range: {error}") from error
