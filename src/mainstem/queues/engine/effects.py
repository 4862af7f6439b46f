"""The effects of a queue, in order: store facts, send deliveries, append dead letters, notify.

A delivery may be sent once its facts are written; a settlement is confirmed as durable once its
facts are committed. A dead letter is appended before ``on_dead_lettered`` settles the
original.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from mainstem.model.ids import StreamId
from mainstem.queues.facts import Pointer, QueueFact, RemovalReason
from mainstem.queues.settings import QueueName


class Deliver(NamedTuple):
    """Deliver a message to a consumer. ``number`` identifies the delivery when it is settled."""

    queue: int
    consumer: str
    number: int
    sequence: int
    stream: StreamId
    pointer: Pointer
    # Number of deliveries, including this one, and number of failures.
    attempt: int
    failures: int

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered before."""
        return self.attempt > 1


class DeadLetter(NamedTuple):
    """Append a message to the dead letter exchange; (queue, lane, sequence) is a permanent id."""

    queue: int
    lane: int
    sequence: int
    stream: StreamId
    pointer: Pointer
    reason: RemovalReason
    at_ms: int
    failures: int


class Dropped(NamedTuple):
    """Messages were removed without a dead letter; for the metrics."""

    queue: int
    reason: RemovalReason
    messages: int
    size_bytes: int


class LeaseLost(NamedTuple):
    """The lease of a consumer expired: the message is delivered to another one."""

    queue: int
    consumer: str
    number: int


class ActiveChanged(NamedTuple):
    """The single active consumer changed; None if there is none."""

    queue: int
    consumer: str | None


class ConsumerCancelled(NamedTuple):
    """A consumer was cancelled, because its queue is gone."""

    queue: int
    consumer: str


class QueueGone(NamedTuple):
    """A queue was deleted, by a client or automatically."""

    queue: int
    name: QueueName


class AdmissionChanged(NamedTuple):
    """Whether routers may offer messages to a queue, or request credit again."""

    queue: int
    is_open: bool


Notice = LeaseLost | ActiveChanged | ConsumerCancelled | QueueGone | AdmissionChanged


@dataclass(slots=True)
class QueueEffects:
    """The effects that the driver of a queue has to carry out.

    ``count`` is the answer to requests for a number of messages.
    """

    facts: list[QueueFact] = field(default_factory=list)
    deliveries: list[Deliver] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    # Delivery numbers that are not held: already settled, or lost.
    unknown: list[int] = field(default_factory=list)
    count: int = 0
