"""Judges what clients of queues and of MQTT saw: was a message lost, doubled or reordered?

The rules are those of at-least-once and exactly-once delivery: a confirmed message is delivered, a
message whose acknowledgement was confirmed does not come back, a message that nobody published is
never delivered, first deliveries keep the order of their publisher.

A publisher that sends a message again because its connection was lost may have made two messages of
one body (``Published.sends``): each of them is delivered and acknowledged by itself.
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
    sends: int = 1  # how often it was sent until it was confirmed

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
    """The server confirmed that every delivery of a message so far is acknowledged."""

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

    @property
    def settled(self) -> int:
        """How many acknowledgements were confirmed."""
        return sum(isinstance(event, Settled) for event in self.events)

    @property
    def sent_again(self) -> int:
        """How many messages were sent more than once, and may therefore be two."""
        return sum(message.sends > 1 for message in self.published)

    @property
    def delivered_again(self) -> int:
        """How many deliveries there were beyond the first of each message."""
        deliveries = [event.value for event in self.events if isinstance(event, Delivered)]
        return len(deliveries) - len(set(deliveries))


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
    sends = {message.value: message.sends for message in history.published}
    settled: set[str] = set()
    times: Counter[str] = Counter()
    # What is delivered after all deliveries so far were settled is another message.
    others: Counter[str] = Counter()
    for event in history.events:
        value = event.value
        if isinstance(event, Settled):
            settled.add(value)
            continue
        copies = sends.get(value, 1)
        times[value] += 1
        others[value] += value in settled
        settled.discard(value)
        if others[value] >= copies:
            yield QueueKind.AFTER_ACK, value
        elif times[value] > copies and promise.exactly_once:
            yield QueueKind.DOUBLED, value
        elif times[value] > copies and promise.marks_redelivery and not event.redelivered:
            yield QueueKind.UNMARKED, value


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
