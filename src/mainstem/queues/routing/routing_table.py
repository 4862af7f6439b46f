"""The queues that a message reaches, through all exchanges of a virtual host, each queue once.

Follows bindings from exchange to exchange, including cycles; an exchange without a match uses its
alternate. The default exchange routes to the queue that the key names, if it exists.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.routing.binding_index import BindingIndex
from mainstem.queues.routing.exchange import DEFAULT_EXCHANGE, Binding, Exchange


class RoutingTable:
    """Exchanges and their bindings at one version."""

    def __init__(self, has_queue: Callable[[str], bool]) -> None:
        self._has_queue = has_queue
        self._exchanges: dict[str, tuple[Exchange, BindingIndex]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._exchanges

    def __iter__(self) -> Iterator[Exchange]:
        return (exchange for exchange, _ in self._exchanges.values())

    def __len__(self) -> int:
        return len(self._exchanges)

    def exchange(self, name: str) -> Exchange:
        """The exchange of that name; raises if it does not exist."""
        return self._need(name)[0]

    def bindings(self, source: str) -> BindingIndex:
        """The bindings of a source exchange."""
        return self._need(source)[1]

    def add_exchange(self, exchange: Exchange) -> None:
        """Add an exchange."""
        self._exchanges[exchange.name] = (exchange, BindingIndex(exchange.kind))

    def remove_exchange(self, name: str) -> None:
        """Remove an exchange with its bindings."""
        self._exchanges.pop(name, None)

    def add(self, binding: Binding) -> None:
        """Add a binding."""
        self._exchanges[binding.source][1].add(binding)

    def remove(self, binding: Binding) -> None:
        """Remove a binding."""
        self._exchanges[binding.source][1].discard(binding)

    def route(
        self, exchange: str, keys: Sequence[str], headers: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """The queues that a message reaches; several keys (CC, BCC) reach the union.

        Raises:
            InvalidRequest: the exchange does not exist.
        """
        index = self._need(exchange)[1]
        if len(keys) == 1:
            if exchange == DEFAULT_EXCHANGE:
                return (keys[0],) if self._has_queue(keys[0]) else ()
            matched = index.match(keys[0], headers)
            # The fast path of nearly all messages: one look-up.
            if matched.queues and not matched.exchanges:
                return matched.queues
        return self._walk(exchange, keys, headers)

    def _walk(
        self, exchange: str, keys: Sequence[str], headers: Mapping[str, Any]
    ) -> tuple[str, ...]:
        queues: dict[str, None] = {}
        seen = {exchange}
        waiting = [exchange]
        while waiting:
            name = waiting.pop()
            # Alternates and destinations may not be declared yet, or deleted.
            known = self._exchanges.get(name)
            if known is None:
                continue
            found, further = self._step(known[1], name, keys, headers)
            if not found and not further and known[0].alternate is not None:
                further = [known[0].alternate]
            queues.update(dict.fromkeys(found))
            waiting += [each for each in reversed(further) if each not in seen]
            seen.update(further)
        return tuple(queues)

    def _step(
        self, index: BindingIndex, name: str, keys: Sequence[str], headers: Mapping[str, Any]
    ) -> tuple[list[str], list[str]]:
        if name == DEFAULT_EXCHANGE:
            return [key for key in keys if self._has_queue(key)], []
        queues: list[str] = []
        exchanges: list[str] = []
        for key in keys:
            matched = index.match(key, headers)
            queues += matched.queues
            exchanges += matched.exchanges
        return queues, exchanges

    def _need(self, name: str) -> tuple[Exchange, BindingIndex]:
        known = self._exchanges.get(name)
        if known is None:
            raise InvalidRequest(ErrorCode.UNKNOWN_EXCHANGE, f"no exchange '{name}'", subject=name)
        return known
