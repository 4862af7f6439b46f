"""Shard: the exchanges and bindings of one virtual host, and their history.

    decide (declare, delete, bind, unbind, queue_gone) ──▶ facts ──▶ replay ──▶ table

Every fact has a version, one more than the fact before. A router notes from which offset of its
stream a version is valid. Messages behind its cursor, which are routed again after a crash, are
then routed by ``table(version)`` as they were the first time: a later binding gets no older
message, and unbinding removes nothing that was routed. Versions no router needs are dropped.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest, Unavailable
from mainstem.model.limits import (
    BINDINGS_ENDED_MAX,
    BINDINGS_PER_NAMESPACE_MAX,
    EXCHANGES_PER_NAMESPACE_MAX,
)
from mainstem.queues.routing.exchange import (
    FOREVER,
    PREDECLARED,
    PREDECLARED_NAMES,
    RESERVED,
    Binding,
    Destination,
    Exchange,
    check_binding,
    check_same,
)
from mainstem.queues.routing.routing_table import RoutingTable


class ExchangeDeclared(Struct, frozen=True, tag="exchange-declared", array_like=True):
    """An exchange exists from this version on."""

    version: int
    exchange: Exchange


class ExchangeDeleted(Struct, frozen=True, tag="exchange-deleted", array_like=True):
    """An exchange was deleted, after its bindings."""

    version: int
    name: str


class Bound(Struct, frozen=True, tag="bound", array_like=True):
    """A binding is valid from this version on."""

    version: int
    binding: Binding


class Unbound(Struct, frozen=True, tag="unbound", array_like=True):
    """A binding was removed."""

    version: int
    binding: Binding


class VersionReached(Struct, frozen=True, tag="version-reached", array_like=True):
    """The virtual host reached this version; the facts before are dropped."""

    version: int


TopologyFact = ExchangeDeclared | ExchangeDeleted | Bound | Unbound | VersionReached


class _Span(Struct):
    of: Exchange | Binding
    since: int
    until: int = FOREVER


class Topology:
    """Holds the exchanges and bindings of a virtual host, with their history.

    Only ``replay`` changes it.
    """

    def __init__(self, has_queue: Callable[[str], bool]) -> None:
        self._has_queue = has_queue
        self.version = 0
        self.live = RoutingTable(has_queue)
        for exchange in PREDECLARED:
            self.live.add_exchange(exchange)
        self._spans: dict[object, _Span] = {}
        self._ended: list[_Span] = []
        self._to: dict[Destination, dict[object, Binding]] = {}
        self._bindings = 0
        self._past: tuple[int, RoutingTable] | None = None

    def declare(self, wanted: Exchange, *, passive: bool = False) -> list[TopologyFact]:
        """Decide to declare an exchange; no facts if an equal one exists."""
        if passive or wanted.name in self.live:
            current = self.live.exchange(wanted.name)
            if not passive:
                check_same(current, wanted)
            return []
        _check_unreserved(wanted.name)
        if len(self.live) - len(PREDECLARED) >= EXCHANGES_PER_NAMESPACE_MAX:
            raise _limit(f"{EXCHANGES_PER_NAMESPACE_MAX} exchanges", wanted.name)
        return [ExchangeDeclared(self.version + 1, wanted)]

    def delete(self, name: str, *, if_unused: bool = False) -> list[TopologyFact]:
        """Decide to delete an exchange, with all bindings from it and to it."""
        if name in PREDECLARED_NAMES or name.startswith(RESERVED):
            _check_unreserved(name)
        if name not in self.live:
            return []
        if if_unused and len(self.live.bindings(name)):
            raise InvalidRequest(
                ErrorCode.RESOURCE_IN_USE, f"exchange '{name}' has bindings", subject=name
            )
        return self._without((), {name})

    def bind(self, binding: Binding) -> list[TopologyFact]:
        """Decide to add a binding; no facts if an equal one exists."""
        check_binding(binding, self.live.exchange(binding.source).kind)
        target = binding.destination
        if not target.is_queue:
            self.live.exchange(target.name)
        elif not self._has_queue(target.name):
            raise InvalidRequest(
                ErrorCode.UNKNOWN_QUEUE, f"no queue '{target.name}'", subject=target.name
            )
        if binding in self.live.bindings(binding.source):
            return []
        if self._bindings >= BINDINGS_PER_NAMESPACE_MAX:
            raise _limit(f"{BINDINGS_PER_NAMESPACE_MAX} bindings", binding.source)
        return [Bound(self.version + 1, binding)]

    def unbind(self, binding: Binding) -> list[TopologyFact]:
        """Decide to remove a binding; no facts if it does not exist."""
        check_binding(binding, self.live.exchange(binding.source).kind)
        if binding not in self.live.bindings(binding.source):
            return []
        return self._without([binding], set())

    def queue_gone(self, name: str) -> list[TopologyFact]:
        """Decide to remove the bindings to a deleted queue."""
        bindings = self._to.get(Destination(is_queue=True, name=name))
        return self._without(list(bindings.values()), set()) if bindings else []

    def restarted(self) -> list[TopologyFact]:
        """Decide to remove transient exchanges and bindings to lost queues after a restart."""
        gone = {each.name for each in self.live if not each.durable}
        lost = [
            binding
            for target, bindings in self._to.items()
            if target.is_queue and not self._has_queue(target.name)
            for binding in bindings.values()
        ]
        return self._without(lost, gone)

    def bindings_to(self, destination: Destination) -> list[Binding]:
        """The bindings to a queue or an exchange."""
        return list(self._to.get(destination, {}).values())

    def upstream(self, names: Iterable[str]) -> set[str]:
        """These exchanges and all from which they receive messages."""
        found: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            found.add(name)
            arriving = self.bindings_to(Destination(is_queue=False, name=name))
            waiting += [binding.source for binding in arriving]
            waiting += [each.name for each in self.live if each.alternate == name]
        return found

    def table(self, version: int) -> RoutingTable:
        """Exchanges and bindings at a version that is not dropped."""
        if version >= self.version:
            return self.live
        if self._past is None or self._past[0] != version:
            self._past = (version, self._rebuilt(version))
        return self._past[1]

    def forget(self, version: int) -> None:
        """Drop the versions before this one, which no router needs."""
        self._ended = [span for span in self._ended if span.until > version]
        self._past = None

    def snapshot(self) -> Iterator[TopologyFact]:
        """Facts that rebuild this topology from an empty one."""
        begun = (_began(span) for span in chain(self._spans.values(), self._ended))
        over = (_over(span) for span in self._ended)
        yield from sorted(chain(begun, over), key=lambda fact: fact.version)
        yield VersionReached(self.version)

    def replay(self, fact: TopologyFact) -> None:
        """Apply a stored fact."""
        self.version = max(self.version, fact.version)
        match fact:
            case ExchangeDeclared(version, exchange):
                self.live.add_exchange(exchange)
                self._spans[exchange.name] = _Span(exchange, version)
            case ExchangeDeleted(version, name):
                self.live.remove_exchange(name)
                self._end(name, version)
            case Bound(version, binding):
                self.live.add(binding)
                self._bindings += 1
                self._spans[binding.identity] = _Span(binding, version)
                self._to.setdefault(binding.destination, {})[binding.identity] = binding
            case Unbound(version, binding):
                self.live.remove(binding)
                self._bindings -= 1
                self._end(binding.identity, version)
                targets = self._to[binding.destination]
                del targets[binding.identity]
                if not targets:
                    del self._to[binding.destination]
            case VersionReached():
                pass

    def _end(self, key: object, version: int) -> None:
        span = self._spans.pop(key)
        span.until = version
        self._ended.append(span)

    def _without(self, bindings: Iterable[Binding], exchanges: set[str]) -> list[TopologyFact]:
        """The facts that remove these, and everything that depends on them."""
        if len(self._ended) >= BINDINGS_ENDED_MAX:
            raise Unavailable(
                ErrorCode.OVERLOADED, "too many removed bindings are still needed to route messages"
            )
        ending = {binding.identity: binding for binding in bindings}
        waiting = list(exchanges)
        for binding in list(ending.values()):
            self._note_unused(binding.source, ending, exchanges, waiting)
        while waiting:
            name = waiting.pop()
            arriving = self.bindings_to(Destination(is_queue=False, name=name))
            for binding in chain(self.live.bindings(name), arriving):
                ending[binding.identity] = binding
                self._note_unused(binding.source, ending, exchanges, waiting)
        ended = enumerate(ending.values(), start=self.version + 1)
        deleted = enumerate(sorted(exchanges), start=self.version + len(ending) + 1)
        return [
            *(Unbound(version, binding) for version, binding in ended),
            *(ExchangeDeleted(version, name) for version, name in deleted),
        ]

    def _note_unused(
        self, name: str, ending: dict[Any, Binding], exchanges: set[str], waiting: list[str]
    ) -> None:
        """Delete an auto-delete exchange with its last binding."""
        if name in exchanges or not self.live.exchange(name).auto_delete:
            return
        if all(binding.identity in ending for binding in self.live.bindings(name)):
            exchanges.add(name)
            waiting.append(name)

    def _rebuilt(self, version: int) -> RoutingTable:
        table = RoutingTable(self._has_queue)
        for exchange in PREDECLARED:
            table.add_exchange(exchange)
        held = [
            span.of
            for span in chain(self._spans.values(), self._ended)
            if span.since <= version < span.until
        ]
        for each in held:
            if isinstance(each, Exchange):
                table.add_exchange(each)
        for each in held:
            if isinstance(each, Binding):
                table.add(each)
        return table


def _began(span: _Span) -> TopologyFact:
    if isinstance(span.of, Exchange):
        return ExchangeDeclared(span.since, span.of)
    return Bound(span.since, span.of)


def _over(span: _Span) -> TopologyFact:
    if isinstance(span.of, Exchange):
        return ExchangeDeleted(span.until, span.of.name)
    return Unbound(span.until, span.of)


def _check_unreserved(name: str) -> None:
    if name in PREDECLARED_NAMES or name.startswith(RESERVED):
        raise InvalidRequest(
            ErrorCode.RESERVED_NAME, f"exchange name '{name}' is reserved", subject=name
        )


def _limit(what: str, subject: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.LIMIT_REACHED, f"a namespace has at most {what}", subject=subject
    )
