"""The topic filters of all sessions, matched together.

A topic is matched level by level; each level follows the branch of its name and the branch of
``+``, and collects the subscriptions at ``#``. The result for a topic is cached until a
subscription changes, so that a busy topic costs one look-up, however many sessions there are.
"""

from typing import Final, Generic, TypeVar

from mainstem.wire.mqtt.packets import Subscription

REMEMBERED_MAX: Final = 10_000

T = TypeVar("T")


class Granted:
    """An active subscription: the filter with its options, and its subscription identifier."""

    __slots__ = ("identifier", "subscription")

    def __init__(self, subscription: Subscription, identifier: int = 0) -> None:
        self.subscription = subscription
        self.identifier = identifier


class _Node(Generic[T]):
    __slots__ = ("children", "here", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.here: dict[T, Granted] = {}
        self.rest: dict[T, Granted] = {}  # subscriptions with ``#`` below this level


Found = tuple[tuple[T, tuple[Granted, ...]], ...]


class SubscriptionTrie(Generic[T]):
    """Subscriptions of all sessions by topic filter."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._remembered: dict[str, Found[T]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, text: str, who: T, granted: Granted) -> bool:
        """Add or replace a subscription; returns whether it is new."""
        node, held = self._at(text, grow=True)
        assert node is not None, "created if missing"
        is_new = who not in held
        held[who] = granted
        self._count += is_new
        self._remembered.clear()
        return is_new

    def discard(self, text: str, who: T) -> bool:
        """Remove a subscription; returns whether it existed."""
        node, held = self._at(text, grow=False)
        if node is None or who not in held:
            return False
        del held[who]
        self._count -= 1
        self._prune(text)
        self._remembered.clear()
        return True

    def match(self, topic: str) -> Found[T]:
        """All subscribers of a topic, each once, with their matching subscriptions."""
        found = self._remembered.get(topic)
        if found is None:
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[topic] = self._walked(topic)
        return found

    def _walked(self, topic: str) -> Found[T]:
        gathered: dict[T, list[Granted]] = {}
        levels = topic.split("/")
        reached = [self._root]
        is_hidden = topic.startswith("$")  # not matched by a leading wildcard
        for place, level in enumerate(levels):
            wild = not (is_hidden and not place)
            following: list[_Node[T]] = []
            for node in reached:
                if wild:
                    _gather(gathered, node.rest)
                    if (child := node.children.get("+")) is not None:
                        following.append(child)
                if (child := node.children.get(level)) is not None:
                    following.append(child)
            reached = following
        for node in reached:
            _gather(gathered, node.rest)
            _gather(gathered, node.here)
        return tuple((who, tuple(granted)) for who, granted in gathered.items())

    def _at(self, text: str, *, grow: bool) -> tuple[_Node[T] | None, dict[T, Granted]]:
        levels = text.split("/")
        has_rest = levels[-1] == "#"
        node = self._root
        for level in levels[:-1] if has_rest else levels:
            child = node.children.get(level)
            if child is None:
                if not grow:
                    return None, {}
                child = node.children[level] = _Node()
            node = child
        return node, node.rest if has_rest else node.here

    def _prune(self, text: str) -> None:
        """Remove empty branches."""
        levels = text.split("/")
        path: list[tuple[_Node[T], str]] = []
        node = self._root
        for level in levels[:-1] if levels[-1] == "#" else levels:
            path.append((node, level))
            node = node.children[level]
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.here or child.rest:
                return
            del parent.children[level]


def _gather(gathered: dict[T, list[Granted]], held: dict[T, Granted]) -> None:
    for who, granted in held.items():
        gathered.setdefault(who, []).append(granted)
