"""A queue as a list, to compare the real one with: slow, plain, and made of other parts."""

from dataclasses import dataclass, field

from mainstem.queues.engine.effects import DeadLetter, Deliver
from mainstem.queues.facts import RemovalReason
from mainstem.queues.settings import QueueSettings


@dataclass
class Held:
    """A message of the reference; ``offset`` names it."""

    offset: int
    size_bytes: int
    priority: int
    expires_ms: int
    visible_ms: int
    sequence: int
    acquired: int = 0
    failures: int = 0
    holder: str | None = None
    number: int = -1
    until_ms: int | None = None
    dying: RemovalReason | None = None


@dataclass
class Reader:
    """A consumer of the reference."""

    name: str
    window: int
    priority: int
    no_ack: bool
    order: int


@dataclass
class Reference:
    """What is in the queue, who reads, and who may be served."""

    settings: QueueSettings
    messages: list[Held] = field(default_factory=list)
    readers: dict[str, Reader] = field(default_factory=dict)
    active: str | None = None
    came: int = 0

    def find(self, offset: int) -> Held:
        [found] = [each for each in self.messages if each.offset == offset]
        return found

    def waiting(self) -> list[Held]:
        """In nobody's hands, and not condemned."""
        return [each for each in self.messages if each.holder is None and each.dying is None]

    def ready(self, now_ms: int) -> list[Held]:
        """What may be delivered, in order."""
        found = [
            each
            for each in self.waiting()
            if each.visible_ms <= now_ms and not 0 < each.expires_ms < now_ms
        ]
        return sorted(found, key=lambda each: (-self.level(each), each.sequence))

    def level(self, message: Held) -> int:
        return min(message.priority, self.settings.top_priority)

    def unsettled(self, reader: str) -> int:
        return sum(each.holder == reader for each in self.messages)

    def eligible(self) -> set[str]:
        """Who may get the next message."""
        self.elect()
        free = [
            reader
            for reader in self.readers.values()
            if not reader.window or self.unsettled(reader.name) < reader.window
        ]
        if self.settings.single_active:
            return {each.name for each in free if each.name in (self.active, None)} & self._heirs()
        top = max((each.priority for each in free), default=0)
        return {each.name for each in free if each.priority == top}

    def elect(self) -> None:
        """The single active consumer changes only with empty hands."""
        if not self.settings.single_active:
            return
        if self.active not in self.readers:
            self.active = None
        if self.active is None or not self.unsettled(self.active):
            self.active = next(iter(self._heirs()), None)

    def _heirs(self) -> set[str]:
        best = min(
            self.readers.values(), key=lambda each: (-each.priority, each.order), default=None
        )
        return set() if best is None else {best.name}

    def delivered(self, delivery: Deliver, now_ms: int) -> None:
        """Check one delivery and take it in."""
        ready = self.ready(now_ms)
        assert ready, "nothing was ready"
        message = ready[0]
        assert delivery.pointer.offset == message.offset, "it was another one's turn"
        assert delivery.consumer in self.eligible(), "it was another consumer's turn"
        self.take(message, delivery, now_ms, no_ack=self.readers[delivery.consumer].no_ack)

    def take(self, message: Held, delivery: Deliver, now_ms: int, *, no_ack: bool) -> None:
        assert delivery.attempt == message.acquired + 1
        assert delivery.redelivered == (message.acquired > 0)
        assert delivery.failures == message.failures
        if no_ack:
            self.messages.remove(message)
            return
        message.acquired += 1
        message.holder = delivery.consumer
        message.number = delivery.number
        lease_ms = self.settings.lease_ms
        message.until_ms = None if lease_ms is None else now_ms + lease_ms

    def give_back(
        self, message: Held, now_ms: int, *, is_failure: bool, delay_ms: int = -1
    ) -> None:
        settings = self.settings
        message.holder = None
        attempts, acquired = settings.max_attempts, settings.max_acquired
        is_worn = is_failure and attempts is not None and message.failures + 1 >= attempts
        if is_worn or (acquired is not None and message.acquired >= acquired):
            self.kill(message, RemovalReason.ATTEMPTS)
        elif 0 < message.expires_ms <= now_ms:
            self.kill(message, RemovalReason.EXPIRED)
        else:
            message.failures += is_failure
            if delay_ms < 0:
                delay_ms = self.back_off_ms(message.failures) if is_failure else 0
            if is_failure or delay_ms:
                message.visible_ms = now_ms + delay_ms if delay_ms else 0

    def back_off_ms(self, failures: int) -> int:
        delay_ms = float(self.settings.retry_ms)
        for _ in range(failures - 1):
            delay_ms = min(delay_ms * self.settings.retry_factor, self.settings.retry_max_ms)
        return int(min(delay_ms, self.settings.retry_max_ms))

    def kill(self, message: Held, reason: RemovalReason) -> None:
        if self.settings.dead_letter_exchange is None:
            self.messages.remove(message)
        else:
            message.dying = reason
            message.holder = None

    def lapse(self, now_ms: int) -> None:
        """Leases that ran out."""
        for message in list(self.messages):
            until_ms = message.until_ms
            if message.holder is not None and until_ms is not None and until_ms <= now_ms:
                self.give_back(message, now_ms, is_failure=True)

    def finish(self, now_ms: int) -> None:
        """What follows once all deliveries of a step are out."""
        for message in self.waiting():
            if 0 < message.expires_ms <= now_ms:
                self.kill(message, RemovalReason.EXPIRED)
        while self._is_over():
            ready = [each for each in self.waiting() if each.visible_ms <= now_ms]
            late = [each for each in self.waiting() if each.visible_ms > now_ms]
            ready.sort(key=lambda each: (self.level(each), each.sequence))
            late.sort(key=lambda each: (each.visible_ms, each.sequence))
            self.kill((ready or late)[0], RemovalReason.OVERFLOW)

    def _is_over(self) -> bool:
        settings = self.settings
        waiting = self.waiting()
        if not waiting or settings.overflow.needs_credit:
            return False
        if settings.max_length is not None and len(waiting) > settings.max_length:
            return True
        size_bytes = sum(each.size_bytes for each in waiting)
        return settings.max_length_bytes is not None and size_bytes > settings.max_length_bytes

    def dying(self) -> dict[int, RemovalReason]:
        return {each.offset: each.dying for each in self.messages if each.dying is not None}

    def crash(self) -> None:
        """Nobody is there any more, and nobody has anything."""
        self.readers.clear()
        self.active = None
        for message in self.messages:
            message.holder = None

    @staticmethod
    def named(letters: list[DeadLetter]) -> dict[int, RemovalReason]:
        return {letter.pointer.offset: letter.reason for letter in letters}
