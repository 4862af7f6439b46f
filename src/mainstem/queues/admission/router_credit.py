"""A router's state of queues that may refuse: their credit, and whether they are full."""

from collections.abc import Sequence

from mainstem.queues.admission.credit import Credit, CreditBalance
from mainstem.queues.settings import Overflow


class RouterCredits:
    """Tracks the credit that queues have lent to a router."""

    def __init__(self) -> None:
        self._balances: dict[str, tuple[Overflow, CreditBalance]] = {}
        self._closed: set[str] = set()
        # Whether no queue can refuse; checked for every message.
        self.is_plain = True

    def lacks(self, queue: str, size_bytes: int) -> bool:
        """Whether the credit of a queue is too low for a message of that size."""
        known = self._balances.get(queue)
        return known is None or not known[1].can_pay(size_bytes)

    def put(self, queue: str, overflow: Overflow, credit: Credit) -> None:
        """Add credit that a queue lent."""
        known = self._balances.get(queue)
        balance = CreditBalance() if known is None else known[1]
        balance.put(credit)
        self._balances[queue] = (overflow, balance)
        self.is_plain = False

    def set_open(self, queue: str, *, is_open: bool) -> None:
        """Note that a queue without credit is full, or no longer."""
        if is_open:
            self._closed.discard(queue)
        else:
            self._closed.add(queue)
        self.is_plain = not self._balances and not self._closed

    def forget(self, queue: str) -> None:
        """Remove a deleted queue."""
        self._balances.pop(queue, None)
        self._closed.discard(queue)
        self.is_plain = not self._balances and not self._closed

    def pay(self, queues: Sequence[str], size_bytes: int) -> None:
        """Deduct the credit for a message to these queues."""
        if self._balances:
            for queue in queues:
                if queue in self._balances:
                    self._balances[queue][1].pay(size_bytes)

    def weighed(
        self, queues: Sequence[str], size_bytes: int
    ) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """The queues that refuse a message, those of them that dead-letter it, those that block."""
        refused = [queue for queue in queues if queue in self._closed]
        dead: list[str] = []
        blocked: list[str] = []
        for queue in queues:
            overflow, balance = self._balances.get(queue, (None, None))
            if balance is None or balance.can_pay(size_bytes):
                continue
            if overflow is Overflow.BLOCK:
                blocked.append(queue)
                continue
            refused.append(queue)
            if overflow is Overflow.REJECT_PUBLISH_DLX:
                dead.append(queue)
        return tuple(refused), tuple(dead), tuple(blocked)
