"""Routing against brute force: every binding looked at, every pattern as an expression."""

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.queues.routing.exchange import (
    DEFAULT_EXCHANGE,
    PREDECLARED,
    Binding,
    Destination,
    Exchange,
    ExchangeKind,
)
from mainstem.queues.routing.pattern_trie import AMQP, PatternTrie
from mainstem.queues.routing.topology import Topology, TopologyFact
from mainstem.queues.storage.fact_codec import TOPOLOGY_CODEC

QUEUES = ["q", "r", "s", "t"]
EXCHANGES = ["x", "y", "z"]
WORDS = st.sampled_from(["a", "b", "", "*", "#"])
KEYS = st.lists(st.sampled_from(["a", "b", ""]), max_size=4).map(".".join)
PATTERNS = st.lists(WORDS, max_size=4).map(".".join)
HEADERS = st.dictionaries(st.sampled_from("hij"), st.sampled_from([1, "v", True]), max_size=3)
ARGUMENTS = st.builds(
    lambda rule, headers: {"x-match": rule, **headers},
    st.sampled_from(["all", "any"]),
    st.dictionaries(st.sampled_from("hij"), st.sampled_from([1, "v", None, True]), max_size=2),
)
DESTINATIONS = st.builds(Destination, st.just(value=True), st.sampled_from(QUEUES)) | st.builds(
    Destination, st.just(value=False), st.sampled_from(EXCHANGES)
)
BINDINGS = st.builds(Binding, st.sampled_from(EXCHANGES), DESTINATIONS, PATTERNS, ARGUMENTS)
DECLARATIONS = st.builds(
    Exchange,
    name=st.sampled_from(EXCHANGES),
    kind=st.sampled_from(ExchangeKind),
    auto_delete=st.booleans(),
    alternate=st.none() | st.sampled_from([*EXCHANGES, DEFAULT_EXCHANGE]),
)
CHANGES = st.lists(
    st.tuples(st.just("declare"), DECLARATIONS)
    | st.tuples(st.just("bind"), BINDINGS)
    | st.tuples(st.just("unbind"), BINDINGS)
    | st.tuples(st.just("delete"), st.sampled_from(EXCHANGES))
    | st.tuples(st.just("queue_gone"), st.sampled_from(QUEUES)),
    max_size=25,
)


def expression(pattern: str) -> re.Pattern[str]:
    """A topic pattern as an expression over words that each end with a dot."""
    if not pattern:
        return re.compile("")
    parts = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    words = pattern.split(".")
    return re.compile("".join(parts.get(word, re.escape(word) + r"\.") for word in words))


def fits(pattern: str, key: str) -> bool:
    return expression(pattern).fullmatch(key + "." if key else "") is not None


def fits_filter(wanted: str, topic: str) -> bool:
    """Whether an MQTT filter matches a topic."""
    if topic.startswith("$") and wanted[:1] in ("+", "#"):
        return False
    levels, parts = topic.split("/"), wanted.split("/")
    for place, part in enumerate(parts):
        if part == "#":
            return True
        if place >= len(levels) or part not in ("+", levels[place]):
            return False
    return len(levels) == len(parts)


def meets(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    wanted = {name: value for name, value in arguments.items() if name != "x-match"}
    met = [
        name in headers
        and (value is None or (type(headers[name]), headers[name]) == (type(value), value))
        for name, value in wanted.items()
    ]
    return any(met) if arguments["x-match"] == "any" else all(met)


class RoutingModel:
    """Exchanges and bindings as plain lists."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.bindings: list[Binding] = []

    def copy(self) -> "RoutingModel":
        other = RoutingModel()
        other.exchanges = dict(self.exchanges)
        other.bindings = list(self.bindings)
        return other

    def route(self, exchange: str, key: str, headers: dict[str, Any]) -> set[str]:
        found: set[str] = set()
        seen: set[str] = set()
        self.walk(exchange, key, headers, found, seen)
        return found

    def walk(
        self, exchange: str, key: str, headers: dict[str, Any], found: set[str], seen: set[str]
    ) -> None:
        if exchange in seen:
            return
        seen.add(exchange)
        if exchange == DEFAULT_EXCHANGE:
            found.update({key} & set(QUEUES))
            return
        declared = self.exchanges.get(exchange)
        if declared is None:
            return
        targets = [
            binding.destination
            for binding in self.bindings
            if binding.source == exchange and self.matches(declared.kind, binding, key, headers)
        ]
        for target in targets:
            if target.is_queue:
                found.add(target.name)
            else:
                self.walk(target.name, key, headers, found, seen)
        if not targets and declared.alternate is not None:
            self.walk(declared.alternate, key, headers, found, seen)

    def matches(
        self, kind: ExchangeKind, binding: Binding, key: str, headers: dict[str, Any]
    ) -> bool:
        if kind is ExchangeKind.DIRECT:
            return binding.key == key
        if kind is ExchangeKind.TOPIC:
            return fits(binding.key, key)
        if kind is ExchangeKind.MQTT:
            return fits_filter(binding.key, key)
        return kind is ExchangeKind.FANOUT or meets(binding.arguments, headers)

    def prune(self, suspects: list[str]) -> None:
        """Exchanges that delete themselves go with their last binding, and theirs with them."""
        while suspects:
            name = suspects.pop()
            known = self.exchanges.get(name)
            if known is None or not known.auto_delete:
                continue
            if not any(binding.source == name for binding in self.bindings):
                self.drop(name, suspects)

    def drop(self, name: str, suspects: list[str]) -> None:
        del self.exchanges[name]
        ending = [
            each
            for each in self.bindings
            if each.source == name
            or (not each.destination.is_queue and each.destination.name == name)
        ]
        self.end(ending, suspects)

    def end(self, ending: list[Binding], suspects: list[str]) -> None:
        gone = {each.identity for each in ending}
        suspects += [each.source for each in ending]
        self.bindings = [each for each in self.bindings if each.identity not in gone]


def play(topology: Topology, model: RoutingModel, change: tuple[str, Any]) -> list[TopologyFact]:
    verb, what = change
    if verb == "declare":
        if what.name in model.exchanges:
            return []
        model.exchanges[what.name] = what
        return topology.declare(what)
    if verb in ("bind", "unbind"):
        return play_binding(topology, model, what, is_new=verb == "bind")
    suspects: list[str] = []
    if verb == "queue_gone":
        model.end([each for each in model.bindings if each.destination == (True, what)], suspects)
    elif what in model.exchanges:
        model.drop(what, suspects)
    model.prune(suspects)
    return topology.queue_gone(what) if verb == "queue_gone" else topology.delete(what)


def play_binding(
    topology: Topology, model: RoutingModel, binding: Binding, *, is_new: bool
) -> list[TopologyFact]:
    ends = [binding.source] + ([] if binding.destination.is_queue else [binding.destination.name])
    if not model.exchanges.keys() >= set(ends):
        return []
    known = binding.identity in {each.identity for each in model.bindings}
    if is_new:
        model.bindings += [] if known else [binding]
        return topology.bind(binding)
    if known:
        suspects: list[str] = []
        model.end([binding], suspects)
        model.prune(suspects)
    return topology.unbind(binding)


@settings(max_examples=150, deadline=None)
@given(changes=CHANGES, messages=st.lists(st.tuples(KEYS, HEADERS), min_size=1, max_size=5))
def test_routes_are_those_of_brute_force_now_and_then(
    changes: list[tuple[str, Any]], messages: list[tuple[str, dict[str, Any]]]
) -> None:
    topology = Topology(set(QUEUES).__contains__)
    model = RoutingModel()
    past = [(topology.version, model.copy())]
    for change in changes:
        for fact in play(topology, model, change):
            again = TOPOLOGY_CODEC.decode(*TOPOLOGY_CODEC.encode(fact))
            assert again is not None
            topology.replay(again)
        past.append((topology.version, model.copy()))

    restored = Topology(set(QUEUES).__contains__)
    for fact in topology.snapshot():
        restored.replay(fact)

    for each in (topology, restored):
        for version, then in past:
            table = each.table(version)
            names = {exchange.name for exchange in table} - {one.name for one in PREDECLARED}
            assert names == then.exchanges.keys()
            for exchange in then.exchanges:
                for key, headers in messages:
                    found = table.route(exchange, [key], headers)
                    assert len(set(found)) == len(found), "a queue is reached once"
                    assert set(found) == then.route(exchange, key, headers)


@settings(max_examples=150, deadline=None)
@given(
    patterns=st.lists(PATTERNS, max_size=8),
    gone=st.sets(st.integers(0, 7)),
    key=KEYS,
)
def test_a_trie_finds_what_each_pattern_would(
    patterns: list[str], gone: set[int], key: str
) -> None:
    trie: PatternTrie[int] = PatternTrie(AMQP)
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    for number in gone:
        if number < len(patterns):
            trie.discard(patterns[number], number)

    expected = {n for n, each in enumerate(patterns) if n not in gone and fits(each, key)}
    assert sorted(trie.match(key)) == sorted(expected)
