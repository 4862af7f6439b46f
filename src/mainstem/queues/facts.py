"""Facts about queues and their messages: all durable state of queues.

A message of a queue is a *pointer*: the position of its body in a stream. Its *sequence* is its
position in the queue. A *lane* is one sequence of deliveries: a queue has one, a fan-out has one
per subscriber.

    fact            meaning
    QueueDeclared   a queue exists, with these settings; QueueChanged, QueueDeleted
    SourcesPassed   records appended before the queue existed are not routed to it
    PointersAdded   messages were added, in this order
    PointersMoved   their bodies are at new positions
    Acquired        they were delivered to a consumer
    Returned        they were returned; ``is_failure`` counts, ``visible_ms`` delays them
    Condemned       they are not delivered again; a dead letter is being published
    Settled         they are removed: acknowledged, or for a reason
    LaneOpened      a subscriber of a fan-out was added; LaneClosed: it was removed
    SnapshotPart    all of the above, up to here, for one queue
    QueuesCounted   how many queue numbers are used up
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mainstem.model.ids import StreamId
from mainstem.queues.settings import QueueName, QueueSettings

# Sequences [start, until).
Span = tuple[int, int]
Spans = tuple[Span, ...]

_SPANS_MAX = 10_000

# The only lane of a queue that is not a fan-out, and all lanes of a fan-out.
ONLY_LANE = 0
ALL_LANES = -1


class RemovalReason(StrEnum):
    """Why a message was removed without an acknowledgement."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    OVERFLOW = "overflow"
    ATTEMPTS = "attempts"
    BAD_PAYLOAD = "bad-payload"
    HANDLER_ERROR = "handler-error"
    # Its body was deleted by retention.
    TRIMMED = "trimmed"
    PURGED = "purged"

    @property
    def amqp(self) -> str:
        """The reason in AMQP's ``x-death``."""
        return _AMQP_WORDS.get(self, "rejected")


_AMQP_WORDS = {
    RemovalReason.EXPIRED: "expired",
    RemovalReason.OVERFLOW: "maxlen",
    RemovalReason.ATTEMPTS: "delivery_limit",
}


# An expiry: on arrival, unless a consumer has space for the message then.
AT_ONCE = 1


class Pointer(Struct, frozen=True, array_like=True, gc=False):
    """The position of a message in its stream, and properties for the queue; 0 ms is never."""

    offset: int
    size_bytes: int
    priority: int = 0
    expires_ms: int = 0
    visible_ms: int = 0


class QueueDeclared(Struct, frozen=True, array_like=True, tag="declared"):
    """A queue was declared. Its number is never reused, even if the name is."""

    queue: int
    name: QueueName
    settings: QueueSettings


class QueueChanged(Struct, frozen=True, array_like=True, tag="changed"):
    """The settings of a queue were changed."""

    queue: int
    settings: QueueSettings


class QueueDeleted(Struct, frozen=True, array_like=True, tag="deleted"):
    """A queue was deleted with all its messages."""

    queue: int


class SourcesPassed(Struct, frozen=True, array_like=True, tag="passed"):
    """Records of streams before these offsets are not for the queue, which was declared later."""

    queue: int
    sources: tuple[tuple[StreamId, int], ...]


class PointersAdded(Struct, frozen=True, array_like=True, tag="added"):
    """Messages of one stream were added from sequence ``start`` on."""

    queue: int
    start: int
    stream: StreamId
    pointers: tuple[Pointer, ...]


class PointersMoved(Struct, frozen=True, array_like=True, tag="moved"):
    """Bodies were appended to another stream: (sequence, offset) of each."""

    queue: int
    stream: StreamId
    places: tuple[tuple[int, int], ...]


class Acquired(Struct, frozen=True, array_like=True, tag="acquired"):
    """Messages were delivered to a consumer."""

    queue: int
    lane: int
    spans: Spans


class Returned(Struct, frozen=True, array_like=True, tag="returned"):
    """Messages were returned to their positions."""

    queue: int
    lane: int
    spans: Spans
    is_failure: bool
    visible_ms: int


class Condemned(Struct, frozen=True, array_like=True, tag="condemned"):
    """Messages are not delivered again; the dead letter is appended before they are settled."""

    queue: int
    lane: int
    spans: Spans
    reason: RemovalReason
    at_ms: int


class Settled(Struct, frozen=True, array_like=True, tag="settled"):
    """Messages were removed; without a reason they were acknowledged."""

    queue: int
    lane: int
    spans: Spans
    reason: RemovalReason | None = None


class LaneOpened(Struct, frozen=True, array_like=True, tag="lane-opened"):
    """A subscriber of a fan-out was added; it gets new messages, and those not delivered yet."""

    queue: int
    lane: int
    subscriber: str
    is_named: bool


class LaneClosed(Struct, frozen=True, array_like=True, tag="lane-closed"):
    """A subscriber was removed."""

    queue: int
    lane: int


class SnapshotPart(Struct, frozen=True, array_like=True, tag="snapshot"):
    """A part of a queue's complete state; valid once the last part is there."""

    queue: int
    part: int
    is_last: bool
    body: dict[str, Any]


class QueuesCounted(Struct, frozen=True, array_like=True, tag="counted"):
    """The number that the next queue gets."""

    queue: int


QueueFact = (
    QueueDeclared
    | QueueChanged
    | QueueDeleted
    | SourcesPassed
    | PointersAdded
    | PointersMoved
    | Acquired
    | Returned
    | Condemned
    | Settled
    | LaneOpened
    | LaneClosed
    | SnapshotPart
    | QueuesCounted
)


def pieces_of(fact: QueueFact) -> Iterable[QueueFact]:
    """Split a fact into equivalent smaller ones, so that none exceeds a batch."""
    spans: Spans = getattr(fact, "spans", ())
    if len(spans) <= _SPANS_MAX:
        return (fact,)
    starts = range(0, len(spans), _SPANS_MAX)
    return [replace(fact, spans=spans[start : start + _SPANS_MAX]) for start in starts]


def spans_of(sequences: Iterable[int]) -> Spans:
    """Combine sequences to spans, in order."""
    ordered = sorted(sequences)
    if not ordered:
        return ()
    spans: list[Span] = []
    start = last = ordered[0]
    for sequence in ordered[1:]:
        if sequence != last + 1:
            spans.append((start, last + 1))
            start = sequence
        last = sequence
    spans.append((start, last + 1))
    return tuple(spans)
