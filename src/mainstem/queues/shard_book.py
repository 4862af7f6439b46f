"""All that one partition of the internal topic keeps: queues, and namespaces that live there.

``replay`` takes both kinds of facts in the order in which they were stored; ``snapshot`` says the
same in fewer.
"""

from collections.abc import Callable, Iterator

from mainstem.queues.facts import QueueFact
from mainstem.queues.queue_book import QueueBook
from mainstem.queues.space_book import InSpace, SpaceBook, SpaceFact, SpacePart

ShardFact = QueueFact | SpaceFact | SpacePart
HasQueue = Callable[[str, str], bool]


class ShardBook:
    """See the module."""

    def __init__(self, has_queue: HasQueue) -> None:
        self._has_queue = has_queue
        self.queues = QueueBook()
        self.spaces: dict[str, SpaceBook] = {}
        self._partial: dict[str, list[InSpace]] = {}
        self._parts: dict[str, int] = {}

    def replay(self, fact: ShardFact) -> None:
        """Take a stored fact in."""
        if isinstance(fact, SpaceFact):
            self.space(fact.namespace).replay(fact.fact)
        elif isinstance(fact, SpacePart):
            self._take_part(fact)
        else:
            self.queues.replay(fact)

    def space(self, namespace: str) -> SpaceBook:
        """The book of a namespace, begun if need be."""
        book = self.spaces.get(namespace)
        if book is None:
            book = self.spaces[namespace] = self._new(namespace)
        return book

    def snapshot(self) -> Iterator[ShardFact]:
        """Facts from which the book can be rebuilt without those before."""
        yield from self.queues.snapshot()
        for namespace, book in self.spaces.items():
            pieces = list(book.snapshot())
            for part, facts in enumerate(pieces):
                yield SpacePart(namespace, part, part == len(pieces) - 1, facts)

    def _new(self, namespace: str) -> SpaceBook:
        has_queue = self._has_queue
        return SpaceBook(lambda name: has_queue(namespace, name))

    def _take_part(self, fact: SpacePart) -> None:
        namespace = fact.namespace
        if fact.part == 0:
            self._partial[namespace] = []
            self._parts[namespace] = 0
        facts = self._partial.get(namespace)
        if facts is None or self._parts[namespace] != fact.part:
            return
        facts += fact.facts
        self._parts[namespace] += 1
        if not fact.is_last:
            return
        book = self.spaces[namespace] = self._new(namespace)
        for each in self._partial.pop(namespace):
            book.replay(each)
