"""The consumers of a queue, exclusive access, and when an unused queue expires."""

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import QUEUE_CONSUMERS_MAX
from mainstem.queues.engine.consumers import Consumer
from mainstem.queues.settings import QueueSettings


class ConsumerRegistry:
    """The consumers of all lanes."""

    def __init__(self, settings: QueueSettings, now_ms: int) -> None:
        self.settings = settings
        self._consumers: dict[str, Consumer] = {}
        self._exclusive: str | None = None
        self._was_consumed = False
        self._unused_since_ms = now_ms

    def __len__(self) -> int:
        return len(self._consumers)

    def ids(self) -> list[str]:
        """The ids of all consumers."""
        return list(self._consumers)

    def get(self, consumer_id: str) -> Consumer | None:
        """The consumer with that id, if it exists."""
        return self._consumers.get(consumer_id)

    @property
    def is_unused(self) -> bool:
        """Whether an auto-delete queue has lost its last consumer."""
        return self.settings.auto_delete and self._was_consumed and not self._consumers

    def expires_at_ms(self) -> int | None:
        """When the queue expires because it is unused."""
        if self.settings.expires_ms is None or self._consumers:
            return None
        return self._unused_since_ms + self.settings.expires_ms

    def used(self, now_ms: int) -> None:
        """Restart the expiry time: the queue was declared again, or a message was requested."""
        self._unused_since_ms = now_ms

    def check(self, consumer_id: str, *, is_exclusive: bool) -> None:
        """Check whether a consumer may be added.

        Raises:
            InvalidRequest: the id is in use, or exclusive access conflicts with other consumers.
        """
        if consumer_id in self._consumers:
            raise _refused(f"consumer '{consumer_id}' already exists")
        if self._exclusive is not None:
            raise _refused(f"consumer '{self._exclusive}' has exclusive access to the queue")
        if is_exclusive and self._consumers:
            raise _refused("the queue has other consumers")
        if len(self._consumers) >= QUEUE_CONSUMERS_MAX:
            raise InvalidRequest(
                ErrorCode.LIMIT_REACHED, f"a queue has at most {QUEUE_CONSUMERS_MAX} consumers"
            )

    def add(self, consumer: Consumer, *, is_exclusive: bool) -> None:
        """Add a checked consumer."""
        self._consumers[consumer.id] = consumer
        self._exclusive = consumer.id if is_exclusive else None
        self._was_consumed = True

    def remove(self, consumer_id: str, now_ms: int) -> Consumer | None:
        """Remove a consumer, if it exists."""
        consumer = self._consumers.pop(consumer_id, None)
        if consumer is not None and not self._consumers:
            self._unused_since_ms = now_ms
        if self._exclusive == consumer_id:
            self._exclusive = None
        return consumer


def _refused(cause: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.RESOURCE_IN_USE, cause)
