"""What happened to queues and their messages; all that outlives a node.

A message of a queue is a *pointer*: where its body stands in a stream. Its *sequence* is its place
in the queue. A *lane* is one line of delivery: a queue has one, a fan-out has one per subscriber.

    fact            says
    QueueDeclared   a queue is there, with these settings; QueueChanged, QueueDeleted
    SourcesPassed   what was appended before the queue was there is not for it
    PointersAdded   messages joined, in this order
    PointersMoved   their bodies stand elsewhere now
    Acquired        they were handed to a consumer
    Returned        they came back; ``is_failure`` counts, ``visible_ms`` makes them wait
    Condemned       they will not be delivered again; a dead letter is on its way
    Settled         they are gone: acknowledged, or for a reason
    LaneOpened      a subscriber of a fan-out is there; LaneClosed: it counts no longer
    SnapshotPart    all of the above, up to here, for one queue
    QueuesCounted   how many numbers of queues are used up
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

# The one lane of a queue that is no fan-out, and all lanes of one that is.
ONLY_LANE = 0
ALL_LANES = -1


class Reason(StrEnum):
    """Why a message left without having been acknowledged."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    OVERFLOW = "overflow"
    ATTEMPTS = "attempts"
    BAD_PAYLOAD = "bad-payload"
    HANDLER_ERROR = "handler-error"
    # Retention was told to pass over it.
    TRIMMED = "trimmed"
    PURGED = "purged"

    @property
    def amqp(self) -> str:
        """The word that AMQP clients know from ``x-death``."""
        return _AMQP_WORDS.get(self, "rejected")


_AMQP_WORDS = {
    Reason.EXPIRED: "expired",
    Reason.OVERFLOW: "maxlen",
    Reason.ATTEMPTS: "delivery_limit",
}


# An expiry: on arrival, unless a consumer has space for the message then.
AT_ONCE = 1


class Pointer(Struct, frozen=True, array_like=True, gc=False):
    """Where a message stands in its stream, and what a queue must know of it; 0 ms is never."""

    offset: int
    size_bytes: int
    priority: int = 0
    expires_ms: int = 0
    visible_ms: int = 0


class QueueDeclared(Struct, frozen=True, array_like=True, tag="declared"):
    """A queue is there. The number is never used again, so a re-created queue is another one."""

    queue: int
    name: QueueName
    settings: QueueSettings


class QueueChanged(Struct, frozen=True, array_like=True, tag="changed"):
    """A queue has other settings from now on."""

    queue: int
    settings: QueueSettings


class QueueDeleted(Struct, frozen=True, array_like=True, tag="deleted"):
    """A queue and all that was in it are gone."""

    queue: int


class SourcesPassed(Struct, frozen=True, array_like=True, tag="passed"):
    """What stands in streams before these offsets is not for the queue: it came later."""

    queue: int
    sources: tuple[tuple[StreamId, int], ...]


class PointersAdded(Struct, frozen=True, array_like=True, tag="added"):
    """Messages of one stream joined from sequence ``start`` on."""

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
    """Messages were handed to a consumer."""

    queue: int
    lane: int
    spans: Spans


class Returned(Struct, frozen=True, array_like=True, tag="returned"):
    """Messages came back to their place."""

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
    reason: Reason
    at_ms: int


class Settled(Struct, frozen=True, array_like=True, tag="settled"):
    """Messages are gone; without a reason they were acknowledged."""

    queue: int
    lane: int
    spans: Spans
    reason: Reason | None = None


class LaneOpened(Struct, frozen=True, array_like=True, tag="lane-opened"):
    """A subscriber of a fan-out is there and gets what comes, and what nobody has taken yet."""

    queue: int
    lane: int
    subscriber: str
    is_named: bool


class LaneClosed(Struct, frozen=True, array_like=True, tag="lane-closed"):
    """A subscriber counts no longer."""

    queue: int
    lane: int


class SnapshotPart(Struct, frozen=True, array_like=True, tag="snapshot"):
    """A piece of a queue's whole state; the last one makes it count."""

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
    """The fact, or several that say the same, so that none outgrows a batch."""
    spans: Spans = getattr(fact, "spans", ())
    if len(spans) <= _SPANS_MAX:
        return (fact,)
    starts = range(0, len(spans), _SPANS_MAX)
    return [replace(fact, spans=spans[start : start + _SPANS_MAX]) for start in starts]


def spans_of(sequences: Iterable[int]) -> Spans:
    """The sequences as spans, in order."""
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
