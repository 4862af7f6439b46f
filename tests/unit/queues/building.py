"""Short ways to say what the tests of queues need."""

from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.queues.admission.watermarks import Watermarks
from mainstem.queues.engine.consumer_window import ConsumerWindow
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.engine.effects import QueueEffects
from mainstem.queues.engine.queue_machine import Queue
from mainstem.queues.engine.shard import QueueShard
from mainstem.queues.facts import Pointer
from mainstem.queues.settings import QueueName, QueueSettings
from mainstem.queues.storage.queue_state import QueueStateTable

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))
NOW = 1_000_000


def queue_of(**settings: object) -> Queue:
    return Queue(0, QueueSettings(**settings), NOW)  # type: ignore[arg-type]


def reader(name: str, window: int = 0, *, priority: int = 0, no_ack: bool = False) -> Consumer:
    return Consumer(name, ConsumerWindow(window), priority=priority, no_ack=no_ack)


def pointers(*offsets: int, size_bytes: int = 10, priority: int = 0) -> tuple[Pointer, ...]:
    return tuple(Pointer(offset, size_bytes, priority) for offset in offsets)


def offer(queue: Queue, *offsets: int, now_ms: int = NOW, priority: int = 0) -> QueueEffects:
    return queue.on_offered(STREAM, pointers(*offsets, priority=priority), now_ms)


def given(effects: QueueEffects) -> list[tuple[str, int]]:
    """Who got which message."""
    return [(each.consumer, each.pointer.offset) for each in effects.deliveries]


def shard_of(memory_bytes_max: int = 10**9) -> QueueShard:
    return QueueShard(QueueStateTable(), Watermarks(memory_bytes_max), NOW)


def named(name: str, namespace: str = "/") -> QueueName:
    return QueueName(namespace, name)
