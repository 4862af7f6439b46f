"""The audit log: one JSON line for each login, each refusal and each change of rights.

    {"time":"2026-01-31T12:00:00.123Z","event":"login","outcome":"refused","user":"alice",...}

Pure: lines are passed to a callback that writes them. They never contain secrets; texts from
clients are truncated, and JSON escapes keep each entry on one line.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from mainstem.model.clock import Clock
from mainstem.security.authorisation.acl import Operation, ResourceType
from mainstem.security.principals import Identity

TEXT_LENGTH_MAX: Final = 300

Write = Callable[[str], None]


class Audit:
    """Formats audit lines."""

    def __init__(self, clock: Clock, write: Write) -> None:
        self._wall_ms = clock.wall_ms
        self._write = write

    def logged_in(self, identity: Identity, address: str) -> None:
        """A client logged in."""
        self._line(
            "login",
            "granted",
            user=str(identity.principal),
            method=identity.method,
            address=address,
        )

    def login_refused(self, user: str, method: str, address: str, reason: str) -> None:
        """A login was refused; ``reason`` is not sent to the client."""
        self._line("login", "refused", user=user, method=method, address=address, reason=reason)

    def refused(
        self, identity: Identity, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> None:
        """An operation was not allowed."""
        self._line(
            "access",
            "refused",
            user=str(identity.principal),
            address=host,
            operation=operation.name,
            resource=kind.name,
            name=name,
        )

    def changed(self, identity: Identity, address: str, what: str, subject: str) -> None:
        """Credentials, rules, roles, quotas or tokens were changed."""
        self._line(
            "change",
            "done",
            user=str(identity.principal),
            address=address,
            what=what,
            subject=subject,
        )

    def _line(self, event: str, outcome: str, **facts: str) -> None:
        when = datetime.fromtimestamp(self._wall_ms() / 1000, tz=UTC)
        line = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": event,
            "outcome": outcome,
            **{name: text[:TEXT_LENGTH_MAX] for name, text in facts.items()},
        }
        self._write(json.dumps(line))
