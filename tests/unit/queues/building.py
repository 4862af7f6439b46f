"""Short ways to say what the tests of queues need."""

from mainstem.model.ids import PartitionIndex, StreamId, TopicId
from mainstem.queues.consumers import Consumer
from mainstem.queues.effects import Effects
from mainstem.queues.facts import Pointer
from mainstem.queues.queue import Queue
from mainstem.queues.queue_book import QueueBook
from mainstem.queues.queue_shard import QueueShard
from mainstem.queues.settings import QueueName, QueueSettings
from mainstem.queues.watermarks import Watermarks
from mainstem.queues.window import Window

STREAM = StreamId(TopicId(bytes(16)), PartitionIndex(0))
NOW = 1_000_000


def queue_of(**settings: object) -> Queue:
    return Queue(0, QueueSettings(**settings), NOW)  # type: ignore[arg-type]


def reader(name: str, window: int = 0, *, priority: int = 0, no_ack: bool = False) -> Consumer:
    return Consumer(name, Window(window), priority=priority, no_ack=no_ack)


def pointers(*offsets: int, size_bytes: int = 10, priority: int = 0) -> tuple[Pointer, ...]:
    return tuple(Pointer(offset, size_bytes, priority) for offset in offsets)


def offer(queue: Queue, *offsets: int, now_ms: int = NOW, priority: int = 0) -> Effects:
    return queue.on_offered(STREAM, pointers(*offsets, priority=priority), now_ms)


def given(effects: Effects) -> list[tuple[str, int]]:
    """Who got which message."""
    return [(each.consumer, each.pointer.offset) for each in effects.deliveries]


def shard_of(memory_bytes_max: int = 10**9) -> QueueShard:
    return QueueShard(QueueBook(), Watermarks(memory_bytes_max), NOW)


def named(name: str, namespace: str = "/") -> QueueName:
    return QueueName(namespace, name)
