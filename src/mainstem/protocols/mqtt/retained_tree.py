"""Retained messages, found by topic filters.

Pure: limited in number and bytes; beyond the limit messages are refused. An empty message removes
the retained one.
"""

from collections.abc import Iterator

from mainstem.protocols.mqtt.convert import Incoming

_OVERHEAD_BYTES = 400  # of the objects around a message


class _Node:
    __slots__ = ("children", "kept")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.kept: Incoming | None = None


class RetainedTree:
    """Retained messages by level."""

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self._root = _Node()
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self.size_bytes = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_space(self, topic: str, size_bytes: int) -> bool:
        """Whether a message of that size may be retained under a topic."""
        known = self.get(topic)
        if known is None and self._count >= self._messages_max:
            return False
        freed = 0 if known is None else _size(known)
        return self.size_bytes - freed + size_bytes + _OVERHEAD_BYTES <= self._bytes_max

    def get(self, topic: str) -> Incoming | None:
        """The retained message of exactly that topic."""
        node: _Node | None = self._root
        for level in topic.split("/"):
            node = None if node is None else node.children.get(level)
        return None if node is None else node.kept

    def keep(self, incoming: Incoming) -> None:
        """Replace the retained message of a topic; an empty one removes it."""
        if not incoming.payload:
            self._drop(incoming.topic)
            return
        node = self._root
        for level in incoming.topic.split("/"):
            node = node.children.setdefault(level, _Node())
        if node.kept is not None:
            self.size_bytes -= _size(node.kept)
            self._count -= 1
        node.kept = incoming
        self.size_bytes += _size(incoming)
        self._count += 1

    def match(self, text: str, now_ms: int) -> Iterator[Incoming]:
        """The retained messages of all topics that match a filter, without expired ones."""
        levels = text.split("/")
        waiting: list[tuple[_Node, int]] = [(self._root, 0)]
        while waiting:
            node, place = waiting.pop()
            if place == len(levels):
                if node.kept is not None and not node.kept.is_expired(now_ms):
                    yield node.kept
                continue
            level = levels[place]
            if level == "#":
                yield from _all(node, now_ms, hidden=bool(place))
            elif level == "+":
                # Reversed, so that popping from the end yields the order of insertion.
                for name, child in reversed(node.children.items()):
                    if place or not name.startswith("$"):
                        waiting.append((child, place + 1))
            elif (found := node.children.get(level)) is not None:
                waiting.append((found, place + 1))

    def _drop(self, topic: str) -> None:
        path: list[tuple[_Node, str]] = []
        node = self._root
        for level in topic.split("/"):
            path.append((node, level))
            child = node.children.get(level)
            if child is None:
                return
            node = child
        if node.kept is None:
            return
        self.size_bytes -= _size(node.kept)
        self._count -= 1
        node.kept = None
        for parent, level in reversed(path):
            child = parent.children[level]
            if child.children or child.kept is not None:
                return
            del parent.children[level]


def _all(top: _Node, now_ms: int, *, hidden: bool) -> Iterator[Incoming]:
    """Everything at and below a node; at the root without topics that start with ``$``."""
    if top.kept is not None and not top.kept.is_expired(now_ms):
        yield top.kept
    below = [node for name, node in top.children.items() if hidden or not name.startswith("$")]
    for node in below:
        yield from _below(node, now_ms)


def _below(top: _Node, now_ms: int) -> Iterator[Incoming]:
    waiting = [top]
    while waiting:
        node = waiting.pop()
        if node.kept is not None and not node.kept.is_expired(now_ms):
            yield node.kept
        waiting.extend(reversed(node.children.values()))


def _size(incoming: Incoming) -> int:
    message = incoming.message
    headers = sum(len(name) + len(value or b"") for name, value in message.headers)
    return len(message.key or b"") + len(message.value or b"") + headers + _OVERHEAD_BYTES
