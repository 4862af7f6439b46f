"""What a queue wants done: store the facts, then send, then append dead letters, then tell.

A delivery may go out once its facts are written; whoever is promised that a settlement lasts is
told once they are committed. A dead letter is appended before ``on_dead_lettered`` settles the
original.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from mainstem.model.ids import StreamId
from mainstem.queues.facts import Pointer, QueueFact, Reason
from mainstem.queues.settings import QueueName


class Deliver(NamedTuple):
    """Hand a message to a consumer. ``number`` names the delivery when it is settled."""

    queue: int
    consumer: str
    number: int
    sequence: int
    stream: StreamId
    pointer: Pointer
    # How many times it has been handed out, this time included, and how many times it failed.
    attempt: int
    failures: int

    @property
    def redelivered(self) -> bool:
        """Whether somebody has had the message before."""
        return self.attempt > 1


class DeadLetter(NamedTuple):
    """Append a message to the dead letter exchange; (queue, lane, sequence) names it for ever."""

    queue: int
    lane: int
    sequence: int
    stream: StreamId
    pointer: Pointer
    reason: Reason
    at_ms: int
    failures: int


class Dropped(NamedTuple):
    """Messages left without a dead letter; for the metrics."""

    queue: int
    reason: Reason
    messages: int
    size_bytes: int


class LeaseLost(NamedTuple):
    """A consumer kept a message for too long: it is no longer its own."""

    queue: int
    consumer: str
    number: int


class ActiveChanged(NamedTuple):
    """Another consumer is the single active one; None if nobody is there."""

    queue: int
    consumer: str | None


class ConsumerCancelled(NamedTuple):
    """A consumer gets nothing more, for its queue is gone."""

    queue: int
    consumer: str


class QueueGone(NamedTuple):
    """A queue was deleted, by somebody or by itself."""

    queue: int
    name: QueueName


class AdmissionChanged(NamedTuple):
    """Whether routers may offer messages to a queue, or ask for credit again."""

    queue: int
    is_open: bool


Notice = LeaseLost | ActiveChanged | ConsumerCancelled | QueueGone | AdmissionChanged


@dataclass(slots=True)
class Effects:
    """Holds what the driver of a queue is to do.

    ``count`` answers requests that ask for a number of messages.
    """

    facts: list[QueueFact] = field(default_factory=list)
    deliveries: list[Deliver] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    # Delivery numbers that nobody holds: settled before, or lost.
    unknown: list[int] = field(default_factory=list)
    count: int = 0
