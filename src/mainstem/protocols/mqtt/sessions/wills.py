"""Delayed wills: published when their delay is over, unless the client reconnects before."""

from collections.abc import Iterator

from mainstem.wire.mqtt.packets import Will


class Wills:
    """Holds at most one delayed will per client."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, Will]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, client_id: str, will: Will, due_ms: int) -> None:
        """Schedule a will."""
        self._waiting[client_id] = due_ms, will

    def cancel(self, client_id: str) -> None:
        """Remove the will of a client that reconnected."""
        self._waiting.pop(client_id, None)

    def take(self, client_id: str) -> Will | None:
        """Remove and return the will of a client whose session ended."""
        _, will = self._waiting.pop(client_id, (0, None))
        return will

    def due(self, now_ms: int) -> Iterator[tuple[str, Will]]:
        """Remove and return the wills whose delay is over."""
        for client_id, (due_ms, will) in list(self._waiting.items()):
            if due_ms <= now_ms:
                del self._waiting[client_id]
                yield client_id, will
