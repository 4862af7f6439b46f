"""The consumers of a lane, and which of them gets the next message.

Consumers of the highest priority with space come first, in turn among equals. With a *single
active* consumer only one gets messages: the one of the highest priority, then the oldest. A later
one of higher priority takes over when the active one has nothing unsettled, so that order is kept.
"""

from collections.abc import Iterator

from mainstem.queues.engine.consumer_window import ConsumerWindow


class Consumer:
    """One consumer; ``shared`` is the window of its channel, if that has one."""

    __slots__ = ("id", "lane", "no_ack", "priority", "shared", "window")

    def __init__(
        self,
        consumer_id: str,
        window: ConsumerWindow,
        *,
        priority: int = 0,
        no_ack: bool = False,
        shared: ConsumerWindow | None = None,
    ) -> None:
        self.id = consumer_id
        self.window = window
        self.priority = priority
        self.no_ack = no_ack
        self.shared = shared
        self.lane = 0

    @property
    def has_space(self) -> bool:
        """Whether it may be sent one more message."""
        return self.window.is_open and (self.shared is None or self.shared.is_open)

    def sent(self, size_bytes: int) -> None:
        """Count a delivery."""
        self.window.sent(size_bytes, is_settled=self.no_ack)
        if self.shared is not None:
            self.shared.sent(size_bytes, is_settled=self.no_ack)

    def settled(self, size_bytes: int, messages: int = 1) -> None:
        """Count messages that it settled or lost."""
        self.window.settled(size_bytes, messages)
        if self.shared is not None:
            self.shared.settled(size_bytes, messages)


class Consumers:
    """Chooses the next consumer of a queue.

    Consumers without space are skipped until they are marked as ready.
    """

    def __init__(self, *, is_single_active: bool) -> None:
        self._is_single_active = is_single_active
        self._all: dict[str, Consumer] = {}
        # Priority -> consumers that may have space, in the order of their turns.
        self._turns: dict[int, dict[str, Consumer]] = {}
        self._priorities: list[int] = []
        self.active: Consumer | None = None
        self._best: Consumer | None = None

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._all.values())

    def get(self, consumer_id: str) -> Consumer | None:
        """The consumer with that id."""
        return self._all.get(consumer_id)

    def add(self, consumer: Consumer) -> None:
        """Add a consumer behind others of its priority."""
        self._all[consumer.id] = consumer
        if self._best is None or consumer.priority > self._best.priority:
            self._best = consumer
        self.mark_ready(consumer)

    def remove(self, consumer_id: str) -> None:
        """Remove a consumer."""
        consumer = self._all.pop(consumer_id)
        self._forget(consumer)
        if self._best is consumer:
            # ``max`` returns the first of equals: the oldest.
            self._best = max(self._all.values(), key=lambda each: each.priority, default=None)
        if self.active is consumer:
            self.active = None
        self._choose()

    def mark_ready(self, consumer: Consumer) -> None:
        """Mark a consumer as having space again."""
        if consumer.id not in self._all:
            return
        turns = self._turns.get(consumer.priority)
        if turns is None:
            turns = self._turns[consumer.priority] = {}
            self._priorities = sorted(self._turns, reverse=True)
        turns.setdefault(consumer.id, consumer)
        self._choose()

    def full(self, consumer: Consumer) -> None:
        """Remove a consumer without space from the turns; later it is last among its equals."""
        turns = self._turns.get(consumer.priority)
        if turns is not None:
            turns.pop(consumer.id, None)

    def next(self) -> Consumer | None:
        """The next consumer; it becomes the last among its equals."""
        if self._is_single_active:
            active = self.active
            is_free = active is not None and active.has_space and active is self._best
            return active if is_free else None
        for priority in self._priorities:
            turns = self._turns[priority]
            while turns:
                consumer = next(iter(turns.values()))
                if len(turns) == 1 and consumer.has_space:
                    return consumer
                del turns[consumer.id]
                if consumer.has_space:
                    turns[consumer.id] = consumer
                    return consumer
        return None

    def _choose(self) -> None:
        """Change the active consumer if it is gone, or is to be replaced and holds nothing."""
        if not self._is_single_active:
            return
        if self.active is None or not self.active.window.unsettled:
            self.active = self._best

    def _forget(self, consumer: Consumer) -> None:
        self.full(consumer)
        if not any(each.priority == consumer.priority for each in self._all.values()):
            self._turns.pop(consumer.priority, None)
            self._priorities = sorted(self._turns, reverse=True)
