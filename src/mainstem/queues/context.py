"""What all drivers of queues share: the time, the bodies of messages, the counters."""

from typing import NamedTuple

from mainstem.queues.counts import QueueCounts
from mainstem.queues.steady_clock import SteadyClock
from mainstem.queues.storage.message_body_driver import MessageBodies


class QueuesContext(NamedTuple):
    """The time, the bodies of messages and the counters of all queues of a node."""

    clock: SteadyClock
    bodies: MessageBodies
    counts: QueueCounts
