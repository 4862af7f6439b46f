"""State that all queue drivers share: the clock, the message bodies, the counters."""

from typing import NamedTuple

from mainstem.queues.counts import QueueCounts
from mainstem.queues.steady_clock import SteadyClock
from mainstem.queues.storage.message_body_driver import MessageBodies


class QueuesContext(NamedTuple):
    """The clock, the message bodies and the counters of all queues of a node."""

    clock: SteadyClock
    bodies: MessageBodies
    counts: QueueCounts
