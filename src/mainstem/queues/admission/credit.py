"""Admission control: rejects publishes before they are stored when a queue is full.

    owner: CreditLender ──lend (messages, bytes)──▶ CreditBalance: router
           ◀──────────── offers use it up ─────────────

A queue that refuses (or blocks) lends routers only its free space, so publishing never overfills
it. Messages that consumers return may: the queue then exceeds its limit by at most what it had
lent. A queue that drops its head needs no credit.
"""

from typing import NamedTuple

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import QUEUE_LENDERS_MAX


class Credit(NamedTuple):
    """A number of messages and their total bytes; None is no limit on bytes."""

    messages: int
    size_bytes: int | None


NOTHING = Credit(0, 0)


class CreditLender:
    """The side of the queue's owner: the credit that each router has left."""

    def __init__(self) -> None:
        self._lent: dict[str, Credit] = {}
        # A request for credit was not satisfied.
        self.is_wanted = False

    @property
    def lent(self) -> Credit:
        """The credit that routers have not used yet."""
        messages = sum(credit.messages for credit in self._lent.values())
        return Credit(messages, sum(credit.size_bytes or 0 for credit in self._lent.values()))

    def lend(self, router: str, wanted: Credit, free: Credit) -> Credit:
        """Lend the requested credit, as far as it is free.

        Raises:
            InvalidRequest: too many routers have credit.
        """
        if router not in self._lent and len(self._lent) >= QUEUE_LENDERS_MAX:
            raise InvalidRequest(
                ErrorCode.LIMIT_REACHED, f"a queue lends to at most {QUEUE_LENDERS_MAX} routers"
            )
        lent = self.lent
        messages = max(0, min(wanted.messages, free.messages - lent.messages))
        size_bytes = None
        if free.size_bytes is not None:
            size_bytes = max(0, free.size_bytes - (lent.size_bytes or 0))
            if wanted.size_bytes is not None:
                size_bytes = min(size_bytes, wanted.size_bytes)
        if not messages or size_bytes == 0:
            self.is_wanted = True
            return NOTHING
        before = self._lent.get(router, NOTHING)
        after_bytes = None if size_bytes is None else (before.size_bytes or 0) + size_bytes
        self._lent[router] = Credit(before.messages + messages, after_bytes)
        return Credit(messages, size_bytes)

    def used(self, router: str, messages: int, size_bytes: int) -> None:
        """Deduct the credit that an offer used."""
        before = self._lent.get(router)
        if before is None:
            return
        after_bytes = None if before.size_bytes is None else max(0, before.size_bytes - size_bytes)
        self._lent[router] = Credit(max(0, before.messages - messages), after_bytes)

    def router_gone(self, router: str) -> None:
        """Withdraw the credit of a router that is gone or returned it."""
        self._lent.pop(router, None)

    def take_credit_request(self, free: Credit) -> bool:
        """Whether a router whose request was not satisfied can ask again; resets the request."""
        lent = self.lent
        has_bytes = free.size_bytes is None or free.size_bytes > (lent.size_bytes or 0)
        if not self.is_wanted or free.messages <= lent.messages or not has_bytes:
            return False
        self.is_wanted = False
        return True


class CreditBalance:
    """The side of the router: the credit that one queue lent it."""

    __slots__ = ("messages", "size_bytes")

    def __init__(self) -> None:
        self.messages = 0
        self.size_bytes: int | None = 0

    def put(self, credit: Credit) -> None:
        """Add credit from the owner."""
        self.messages += credit.messages
        if credit.size_bytes is None:
            self.size_bytes = None
        elif self.size_bytes is not None:
            self.size_bytes += credit.size_bytes

    def can_pay(self, size_bytes: int) -> bool:
        """Whether the credit suffices for a message of that size."""
        return self.messages > 0 and (self.size_bytes is None or self.size_bytes >= size_bytes)

    def pay(self, size_bytes: int) -> None:
        """Deduct the credit for a message."""
        self.messages -= 1
        if self.size_bytes is not None:
            self.size_bytes -= size_bytes
