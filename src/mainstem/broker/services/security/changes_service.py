"""Changes of the security tables: recorded in the catalogue first, in the audit after that."""

from typing import TypeVar

from mainstem.broker.api.security import Caller
from mainstem.placement.changes.command_and_fact import Command
from mainstem.placement.service import PlacementService
from mainstem.placement.state.security_table import SecurityTable
from mainstem.security.audit import Audit

ReplyT = TypeVar("ReplyT")


class SecurityChanges:
    """What users, rules, roles, tokens and quotas are read from and changed through."""

    def __init__(self, placement: PlacementService, audit: Audit) -> None:
        self._placement = placement
        self._audit = audit

    @property
    def table(self) -> SecurityTable:
        """What is durable now."""
        return self._placement.catalogue.security

    def check(self, command: Command[ReplyT]) -> ReplyT:
        """What ``submit`` would answer now, without doing it."""
        return self._placement.check(command)

    async def submit(self, command: Command[ReplyT]) -> ReplyT:
        """Have a command decided; the reply once its facts are durable."""
        return await self._placement.submit(command)

    def record(self, caller: Caller, what: str, subject: str) -> None:
        """Put a change that was made into the audit."""
        self._audit.changed(caller.identity, caller.address, what, subject)
