"""Patterns over words, matched together: topic exchanges of AMQP and filters of MQTT.

    AMQP  stock.*.nyse   orders.#    `*` is one word, `#` none or more, anywhere
    MQTT  home/+/light   home/#      `+` is one level, `#` the rest, and the level before it

A match walks the trie with the set of nodes reached so far, so its cost grows with the words and
with the branches that match, not with the patterns; patterns such as ``#.#.#.a`` cost no more.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Wildcards(Struct, frozen=True):
    """The syntax of patterns. ``hides`` starts topics that a leading wildcard does not match."""

    separator: str
    one: str
    rest: str
    hides: str = ""


AMQP = Wildcards(".", "*", "#")
MQTT = Wildcards("/", "+", "#", hides="$")


class _Node(Generic[T]):
    __slots__ = ("children", "found", "is_rest")

    def __init__(self, *, is_rest: bool = False) -> None:
        self.children: dict[str, _Node[T]] = {}
        # Values are keys of a dict, which keeps their order and removes in constant time.
        self.found: dict[T, None] = {}
        self.is_rest = is_rest


class PatternTrie(Generic[T]):
    """Values under patterns; a value may be under many."""

    def __init__(self, wildcards: Wildcards = AMQP) -> None:
        self._wildcards = wildcards
        self._root: _Node[T] = _Node()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, pattern: str, value: T) -> None:
        """Add a value under a pattern; adding it twice changes nothing."""
        node = self._root
        for word in self._words(pattern):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(is_rest=word == self._wildcards.rest)
            node = child
        self._count += value not in node.found
        node.found[value] = None

    def discard(self, pattern: str, value: T) -> None:
        """Remove a value under a pattern; empty branches are removed."""
        path: list[tuple[_Node[T], str]] = []
        node = self._root
        for word in self._words(pattern):
            path.append((node, word))
            child = node.children.get(word)
            if child is None:
                return
            node = child
        if value not in node.found:
            return
        del node.found[value]
        self._count -= 1
        for parent, word in reversed(path):
            child = parent.children[word]
            if child.found or child.children:
                return
            del parent.children[word]

    def match(self, topic: str) -> Iterator[T]:
        """Every value under a pattern that matches; may contain duplicates."""
        hides = self._wildcards.hides
        is_hidden = bool(hides) and topic.startswith(hides)
        reached = {id(self._root): self._root}
        if not is_hidden:
            self._close(reached)
        for word in self._words(topic):
            reached = self._step(reached, word, is_literal=is_hidden)
            is_hidden = False
        for node in reached.values():
            yield from node.found

    def _step(
        self, reached: dict[int, _Node[T]], word: str, *, is_literal: bool
    ) -> dict[int, _Node[T]]:
        """The nodes that one more word leads to, each once, however many paths lead to it."""
        after: dict[int, _Node[T]] = {}
        for node in reached.values():
            if node.is_rest:
                after[id(node)] = node
            child = node.children.get(word)
            if child is not None and not child.is_rest:
                after[id(child)] = child
            child = None if is_literal else node.children.get(self._wildcards.one)
            if child is not None:
                after[id(child)] = child
        self._close(after)
        return after

    def _close(self, reached: dict[int, _Node[T]]) -> None:
        """Add the nodes of rest wildcards, which also match no words."""
        for node in list(reached.values()):
            child = node.children.get(self._wildcards.rest)
            while child is not None and id(child) not in reached:
                reached[id(child)] = child
                child = child.children.get(self._wildcards.rest)

    def _words(self, text: str) -> list[str]:
        # An empty routing key has no word, so that `*` does not match it; MQTT has empty levels.
        if not text and self._wildcards.separator == ".":
            return []
        return text.split(self._wildcards.separator)
