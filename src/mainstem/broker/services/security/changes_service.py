"""Changes of the security tables: recorded in the catalogue, then in the audit log."""

from typing import TypeVar

from mainstem.broker.api.security import Caller
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.service import PlacementService
from mainstem.placement.state.security_table import SecurityTable
from mainstem.security.audit import Audit

ReplyT = TypeVar("ReplyT")


class SecurityChanges:
    """Reads and changes users, rules, roles, tokens and quotas."""

    def __init__(self, placement: PlacementService, audit: Audit) -> None:
        self._placement = placement
        self._audit = audit

    @property
    def table(self) -> SecurityTable:
        """The durable state."""
        return self._placement.catalogue.security

    def check(self, command: Command[ReplyT]) -> ReplyT:
        """What ``submit`` would return now, without doing it."""
        return self._placement.check(command)

    async def submit(self, command: Command[ReplyT]) -> ReplyT:
        """Have a command decided; the reply once its facts are durable."""
        return await self._placement.submit(command)

    def record(self, caller: Caller, what: str, subject: str) -> None:
        """Record a completed change in the audit log."""
        self._audit.changed(caller.identity, caller.address, what, subject)
