"""The bindings of one exchange, indexed for matching.

Direct: a table of keys. Fan-out: the list. Topic, MQTT: a trie. Headers: a table of headers. The
result for a key is cached, up to a limit, until a binding changes: a publish to a busy exchange
then costs the same with one or a thousand queues.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from mainstem.model.limits import ROUTES_REMEMBERED_MAX
from mainstem.queues.routing.exchange import Binding, ExchangeKind
from mainstem.queues.routing.header_table import HeaderTable
from mainstem.queues.routing.pattern_trie import AMQP, MQTT, PatternTrie

_Identity = tuple[Any, ...]
_PATTERNS = (ExchangeKind.TOPIC, ExchangeKind.MQTT)


class BindingMatch(NamedTuple):
    """The queues and the further exchanges that a message goes to, each once."""

    queues: tuple[str, ...]
    exchanges: tuple[str, ...]


class BindingIndex:
    """Finds the bindings of an exchange that match a message.

    Bindings are distinguished by their identity.
    """

    def __init__(self, kind: ExchangeKind) -> None:
        self.kind = kind
        self._bindings: dict[_Identity, Binding] = {}
        self._by_key: dict[str, dict[_Identity, None]] = {}
        self._trie: PatternTrie[_Identity] = PatternTrie(
            MQTT if kind is ExchangeKind.MQTT else AMQP
        )
        self._headers: HeaderTable[_Identity] = HeaderTable()
        self._remembered: dict[str, BindingMatch] = {}

    def __len__(self) -> int:
        return len(self._bindings)

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._bindings.values())

    def __contains__(self, binding: Binding) -> bool:
        return binding.identity in self._bindings

    def add(self, binding: Binding) -> None:
        """Add a binding; a known one changes nothing."""
        identity = binding.identity
        if identity in self._bindings:
            return
        self._remembered.clear()
        self._bindings[identity] = binding
        if self.kind is ExchangeKind.DIRECT:
            self._by_key.setdefault(binding.key, {})[identity] = None
        elif self.kind in _PATTERNS:
            self._trie.add(binding.key, identity)
        elif self.kind is ExchangeKind.HEADERS:
            self._headers.add(binding.arguments, identity)

    def discard(self, binding: Binding) -> None:
        """Remove a binding."""
        identity = binding.identity
        if self._bindings.pop(identity, None) is None:
            return
        self._remembered.clear()
        if self.kind is ExchangeKind.DIRECT:
            under = self._by_key[binding.key]
            del under[identity]
            if not under:
                del self._by_key[binding.key]
        elif self.kind in _PATTERNS:
            self._trie.discard(binding.key, identity)
        elif self.kind is ExchangeKind.HEADERS:
            self._headers.discard(binding.arguments, identity)

    def match(self, key: str, headers: Mapping[str, Any]) -> BindingMatch:
        """The targets of a message with that key and those headers."""
        if self.kind is ExchangeKind.HEADERS:
            return self._once(self._headers.match(headers))
        asked = "" if self.kind is ExchangeKind.FANOUT else key
        known = self._remembered.get(asked)
        if known is not None:
            return known
        found = self._once(self._found(key))
        if len(self._remembered) >= ROUTES_REMEMBERED_MAX:
            self._remembered.clear()
        self._remembered[asked] = found
        return found

    def _found(self, key: str) -> Iterable[_Identity]:
        if self.kind is ExchangeKind.DIRECT:
            return self._by_key.get(key, ())
        if self.kind in _PATTERNS:
            return self._trie.match(key)
        return self._bindings

    def _once(self, identities: Iterable[_Identity]) -> BindingMatch:
        bindings = self._bindings
        found = {bindings[identity].destination: None for identity in identities}
        return BindingMatch(
            tuple(name for is_queue, name in found if is_queue),
            tuple(name for is_queue, name in found if not is_queue),
        )
