"""Decides whether a queue accepts messages: the owner's side of admission.

Queues that refuse or block lend credit. All others are open until they have the maximum number of
messages of any queue; then routers refuse until a sixteenth of that number is free.
"""

from mainstem.model.limits import QUEUE_MESSAGES_MAX
from mainstem.queues.admission.credit import Credit, CreditLender
from mainstem.queues.engine.effects import AdmissionChanged, QueueEffects
from mainstem.queues.engine.queue_operations import QueueOperations

# A closed queue opens again when this much is free, so that it does not change with every message.
_REOPEN_AT = QUEUE_MESSAGES_MAX - QUEUE_MESSAGES_MAX // 16


class QueueAdmission:
    """Decides whether a queue accepts messages."""

    def __init__(self, body: QueueOperations) -> None:
        self._body = body
        self._lender = CreditLender()
        self.is_open = True

    @property
    def lent(self) -> Credit:
        """The credit that routers have left."""
        return self._lender.lent

    def lend(self, router: str, wanted: Credit) -> Credit:
        """Lend credit to a router; if there is none, a notice follows once there is."""
        return self._lender.lend(router, wanted, self._body.free)

    def used(self, router: str, messages: int, size_bytes: int) -> None:
        """Deduct credit for messages of a router."""
        self._lender.used(router, messages, size_bytes)

    def router_gone(self, router: str) -> None:
        """Withdraw the credit of a router."""
        self._lender.router_gone(router)

    def notify(self, effects: QueueEffects) -> None:
        """Notify routers of a change, if there is one."""
        held = len(self._body.ledger)
        if self.is_open and held >= QUEUE_MESSAGES_MAX:
            self.is_open = False
            effects.notices.append(AdmissionChanged(self._body.id, is_open=False))
        elif not self.is_open and held <= _REOPEN_AT:
            self.is_open = True
            effects.notices.append(AdmissionChanged(self._body.id, is_open=True))
        elif self._lender.is_wanted and self._lender.take_credit_request(self._body.free):
            effects.notices.append(AdmissionChanged(self._body.id, is_open=True))
