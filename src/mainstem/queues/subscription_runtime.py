"""Those who hold messages: a consumer with its window, or somebody who got a single message.

What is settled in one turn of the loop reaches the queue as one change, in the order in which it
was said.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mainstem.model.errors import MainstemError
from mainstem.queues.consumers import Consumer
from mainstem.queues.settling import Settlement
from mainstem.queues.vocabulary import Delivery

if TYPE_CHECKING:
    from mainstem.queues.queue_shard_runtime import QueueShardRuntime

Deliver = Callable[[Sequence[Delivery]], None]
Ended = Callable[[MainstemError | None], None]


class Holder:
    """Whoever has messages of one queue in its hands."""

    def __init__(self, shard: "QueueShardRuntime", queue: int, holder_id: str) -> None:
        self.shard = shard
        self.queue = queue
        self.id = holder_id
        self.wishes: list[tuple[Settlement, list[int]]] = []

    def settle(self, numbers: Sequence[int], how: Settlement) -> None:
        """Deliveries end; numbers that are not held any more are passed over."""
        wishes = self.wishes
        if wishes and wishes[-1][0] is how:
            wishes[-1][1].extend(numbers)
            return
        if not wishes:
            self.shard.settle_soon(self)
        wishes.append((how, list(numbers)))

    async def settled(self) -> None:
        """Return once everything settled before is committed."""
        await self.shard.safe()

    def take_wishes(self) -> list[tuple[Settlement, list[int]]]:
        """What was said since the last turn."""
        wishes, self.wishes = self.wishes, []
        return wishes


class LiveSubscription(Holder):
    """One consumer of a queue."""

    def __init__(
        self,
        shard: "QueueShardRuntime",
        queue: int,
        consumer: Consumer,
        deliver: Deliver,
        ended: Ended,
    ) -> None:
        super().__init__(shard, queue, consumer.id)
        self.consumer = consumer
        self.deliver = deliver
        self._ended: Ended | None = ended
        self.is_open = True

    def changed(self) -> None:
        """The session changed the window."""
        self.shard.window_changed(self)

    def credit(self, messages: int) -> None:
        """Grant more deliveries."""
        window = self.consumer.window
        if window.credit is not None:
            window.credit += messages
            self.shard.window_changed(self)

    def cancel(self) -> None:
        """Deliver nothing more; what was delivered stays in hand."""
        if self.is_open:
            self.is_open = False
            self.shard.cancel(self)

    def close(self) -> None:
        """The session is gone: what it had returns to its place."""
        self.is_open = False
        self._ended = None
        self.shard.release(self)

    def end(self, error: MainstemError | None) -> None:
        """The queue ended the subscription."""
        self.is_open = False
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(error)
