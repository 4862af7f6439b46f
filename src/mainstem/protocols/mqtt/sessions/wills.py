"""Wills that wait for their time: the client may come back before it."""

from collections.abc import Iterator

from mainstem.wire.mqtt.packets import Will


class Wills:
    """At most one per client."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, Will]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, client_id: str, will: Will, due_ms: int) -> None:
        """Let a will be published at that time."""
        self._waiting[client_id] = due_ms, will

    def cancel(self, client_id: str) -> None:
        """The client is back."""
        self._waiting.pop(client_id, None)

    def take(self, client_id: str) -> Will | None:
        """The client's session is over: its will is due now."""
        _, will = self._waiting.pop(client_id, (0, None))
        return will

    def due(self, now_ms: int) -> Iterator[tuple[str, Will]]:
        """Those whose time has come; they wait no more."""
        for client_id, (due_ms, will) in list(self._waiting.items()):
            if due_ms <= now_ms:
                del self._waiting[client_id]
                yield client_id, will
