"""Queues, exchanges and bindings over the HTTP API, for tools."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from mainstem.client.rest_admin import RestAdmin

Row = dict[str, Any]


class RestQueues:
    """Client of the queue API for one namespace; ``rest`` sends the requests."""

    def __init__(self, rest: RestAdmin, namespace: str = "/") -> None:
        self._rest = rest
        self._namespace = namespace

    # Queues

    def queues(self) -> list[Row]:
        """Every queue."""
        return self._rest.ask("GET", self._path("queues"), list[Row])

    def describe(self, name: str) -> Row:
        """One queue."""
        return self._rest.ask("GET", self._path("queues", name), Row)

    def declare(self, name: str, options: Mapping[str, Any]) -> Row:
        """Declare a queue: durable, auto_delete, arguments, on_difference."""
        return self._rest.ask("PUT", self._path("queues", name), Row, options)

    def delete(self, name: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue; returns how many messages were ready."""
        only = {"if_unused": _word(if_unused), "if_empty": _word(if_empty)}
        gone = self._rest.ask("DELETE", self._path("queues", name, query=only), Row)
        return int(gone["messages"])

    def publish(self, name: str, messages: Sequence[Row]) -> Row:
        """Publish to a queue."""
        path = self._path("queues", name, "messages")
        return self._rest.ask("POST", path, Row, {"messages": messages})

    def browse(self, name: str, *, start: int = 0, limit: int = 100) -> list[Row]:
        """Browse messages without removing them."""
        query = {"start": str(start), "limit": str(limit)}
        path = self._path("queues", name, "messages", query=query)
        return self._rest.ask("GET", path, list[Row])

    def take(self, name: str, count: int) -> list[Row]:
        """Get messages and acknowledge them."""
        path = self._path("queues", name, "take")
        return self._rest.ask("POST", path, list[Row], {"count": count})

    def purge(self, name: str) -> int:
        """Drop all messages that are not being delivered; returns how many."""
        purged = self._rest.ask("POST", self._path("queues", name, "purge"), Row, {})
        return int(purged["messages"])

    def move(
        self,
        name: str,
        *,
        destination: str | None = None,
        where: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> int:
        """Move messages to another queue, or dead letters to their origin; returns how many."""
        options = {"destination": destination, "where": where or {}, "limit": limit}
        moved = self._rest.ask("POST", self._path("queues", name, "move"), Row, options)
        return int(moved["messages"])

    # Exchanges and bindings

    def exchanges(self) -> list[Row]:
        """Every exchange."""
        return self._rest.ask("GET", self._path("exchanges"), list[Row])

    def declare_exchange(self, name: str, options: Mapping[str, Any]) -> Row:
        """Declare an exchange: type, durable, auto_delete, internal, shared, arguments."""
        return self._rest.ask("PUT", self._path("exchanges", name), Row, options)

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange."""
        path = self._path("exchanges", name, query={"if_unused": _word(if_unused)})
        self._rest.ask("DELETE", path, Row)

    def publish_to_exchange(self, name: str, messages: Sequence[Row]) -> Row:
        """Publish to an exchange; keys of messages are routing keys."""
        path = self._path("exchanges", name, "messages")
        return self._rest.ask("POST", path, Row, {"messages": messages})

    def bindings(self) -> list[Row]:
        """Every binding."""
        return self._rest.ask("GET", self._path("bindings"), list[Row])

    def bind(self, binding: Mapping[str, Any]) -> None:
        """Create a binding: source, destination, destination_type, key, arguments."""
        self._rest.ask("POST", self._path("bindings"), Row, binding)

    def unbind(self, binding: Mapping[str, str]) -> None:
        """Delete a binding: source, destination, destination_type, key."""
        self._rest.ask("DELETE", self._path("bindings", query=binding), Row)

    def _path(self, *parts: str, query: Mapping[str, str] | None = None) -> str:
        place = "/".join(quote(part) for part in parts)
        asked = {"namespace": self._namespace, **(query or {})}
        return f"/v1/{place}?{urlencode(asked)}"


def _word(value: bool) -> str:  # noqa: FBT001 - the value to convert
    return "true" if value else "false"
