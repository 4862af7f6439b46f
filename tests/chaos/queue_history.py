"""Judges what clients of queues and of MQTT saw: was a message lost, doubled or reordered?

The rules are those of at-least-once and exactly-once delivery: a confirmed message is delivered, a
message whose acknowledgement was confirmed does not come back, a message that nobody published is
never delivered, first deliveries keep the order of their publisher.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.history import Anomaly, Outcome


class QueueKind(StrEnum):
    """What can be wrong with the history of a queue."""

    LOST = "a confirmed message was never delivered"
    AFTER_ACK = "a message was delivered after its acknowledgement was confirmed"
    DOUBLED = "a message was delivered twice where that is excluded"
    UNMARKED = "a message was delivered again and not marked as redelivered"
    PHANTOM = "a message was delivered that nobody published"
    REFUSED = "a message was delivered that had been refused"
    REORDERED = "first deliveries changed their publisher's order"


@dataclass(slots=True)
class Published:
    """A message given to a publisher."""

    publisher: str
    number: int
    outcome: Outcome = Outcome.UNKNOWN

    @property
    def value(self) -> str:
        """The body, unique in a history."""
        return f"{self.publisher}:{self.number}"


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that a consumer received, in the order of receiving."""

    value: str
    redelivered: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """The server confirmed that a message is acknowledged."""

    value: str


@dataclass(slots=True)
class QueueHistory:
    """Everything that happened to one queue or one subscription."""

    queue: str
    kind: str = "queue"
    published: list[Published] = field(default_factory=list)
    # Deliveries and confirmed acknowledgements, in the order in which the consumer noticed them.
    events: list[Delivered | Settled] = field(default_factory=list)

    @property
    def delivered(self) -> int:
        """How many deliveries there were."""
        return sum(isinstance(event, Delivered) for event in self.events)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a protocol promises beyond at-least-once delivery."""

    exactly_once: bool = False
    marks_redelivery: bool = True


def check_queue(history: QueueHistory, promise: Promise) -> list[Anomaly]:
    """Every broken rule."""
    stream = (history.queue, 0)
    found = [
        *_lost(history),
        *_repeated(history, promise),
        *_unknown(history),
        *_reordered(history),
    ]
    return [Anomaly(kind, stream, detail) for kind, detail in found]


def _lost(history: QueueHistory) -> Iterable[tuple[QueueKind, str]]:
    seen = {event.value for event in history.events if isinstance(event, Delivered)}
    for message in history.published:
        if message.outcome is Outcome.OK and message.value not in seen:
            yield QueueKind.LOST, message.value


def _repeated(history: QueueHistory, promise: Promise) -> Iterable[tuple[QueueKind, str]]:
    settled: set[str] = set()
    times: Counter[str] = Counter()
    for event in history.events:
        if isinstance(event, Settled):
            settled.add(event.value)
            continue
        times[event.value] += 1
        if event.value in settled:
            yield QueueKind.AFTER_ACK, event.value
        elif times[event.value] > 1 and promise.exactly_once:
            yield QueueKind.DOUBLED, event.value
        elif times[event.value] > 1 and promise.marks_redelivery and not event.redelivered:
            yield QueueKind.UNMARKED, event.value


def _unknown(history: QueueHistory) -> Iterable[tuple[QueueKind, str]]:
    outcomes = {message.value: message.outcome for message in history.published}
    for value in {event.value for event in history.events if isinstance(event, Delivered)}:
        outcome = outcomes.get(value)
        if outcome is None:
            yield QueueKind.PHANTOM, value
        elif outcome is Outcome.REFUSED:
            yield QueueKind.REFUSED, value


def _reordered(history: QueueHistory) -> Iterable[tuple[QueueKind, str]]:
    """First deliveries of what was confirmed: a message of unknown outcome may come late."""
    confirmed = {m.value for m in history.published if m.outcome is Outcome.OK}
    last: dict[str, int] = defaultdict(lambda: -1)
    seen: set[str] = set()
    for event in history.events:
        if not isinstance(event, Delivered) or event.value in seen:
            continue
        seen.add(event.value)
        if event.redelivered or event.value not in confirmed:
            continue
        publisher, _, digits = event.value.rpartition(":")
        number = int(digits)
        if number < last[publisher]:
            yield QueueKind.REORDERED, f"{event.value} after {publisher}:{last[publisher]}"
        last[publisher] = max(last[publisher], number)
