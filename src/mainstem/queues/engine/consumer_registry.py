"""Who consumes from a queue, whether anybody else may, and whether the queue is still used."""

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
        """The names of all consumers."""
        return list(self._consumers)

    def get(self, consumer_id: str) -> Consumer | None:
        """The consumer of that name, if it is there."""
        return self._consumers.get(consumer_id)

    @property
    def is_unused(self) -> bool:
        """Whether a queue that deletes itself has lost its last consumer."""
        return self.settings.auto_delete and self._was_consumed and not self._consumers

    def expires_at_ms(self) -> int | None:
        """When the queue goes because nobody uses it."""
        if self.settings.expires_ms is None or self._consumers:
            return None
        return self._unused_since_ms + self.settings.expires_ms

    def used(self, now_ms: int) -> None:
        """Somebody declared the queue again, or asked it for a message."""
        self._unused_since_ms = now_ms

    def check(self, consumer_id: str, *, is_exclusive: bool) -> None:
        """Whether a consumer may come.

        Raises:
            InvalidRequest: the name is taken, somebody is alone there, or wants to be.
        """
        if consumer_id in self._consumers:
            raise _refused(f"consumer '{consumer_id}' is there already")
        if self._exclusive is not None:
            raise _refused(f"consumer '{self._exclusive}' has the queue for itself")
        if is_exclusive and self._consumers:
            raise _refused("others consume from the queue")
        if len(self._consumers) >= QUEUE_CONSUMERS_MAX:
            raise InvalidRequest(
                ErrorCode.LIMIT_REACHED, f"a queue has at most {QUEUE_CONSUMERS_MAX} consumers"
            )

    def add(self, consumer: Consumer, *, is_exclusive: bool) -> None:
        """A consumer that was checked comes."""
        self._consumers[consumer.id] = consumer
        self._exclusive = consumer.id if is_exclusive else None
        self._was_consumed = True

    def remove(self, consumer_id: str, now_ms: int) -> Consumer | None:
        """A consumer goes, if it was there."""
        consumer = self._consumers.pop(consumer_id, None)
        if consumer is not None and not self._consumers:
            self._unused_since_ms = now_ms
        if self._exclusive == consumer_id:
            self._exclusive = None
        return consumer


def _refused(cause: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.RESOURCE_IN_USE, cause)
