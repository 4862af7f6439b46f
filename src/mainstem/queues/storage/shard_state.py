"""The state of one partition of the internal topic: its queues and virtual hosts.

``replay`` applies both kinds of facts in the order in which they were stored; ``snapshot`` returns
an equivalent, shorter sequence of facts.
"""

from collections.abc import Callable, Iterator

from mainstem.queues.facts import QueueFact
from mainstem.queues.storage.queue_state import QueueStateTable
from mainstem.queues.storage.virtual_host_state import (
    InSpace,
    SpaceFact,
    SpacePart,
    VirtualHostState,
)

ShardFact = QueueFact | SpaceFact | SpacePart
HasQueue = Callable[[str, str], bool]


class ShardState:
    """Holds the queues and virtual hosts of one internal partition."""

    def __init__(self, has_queue: HasQueue) -> None:
        self._has_queue = has_queue
        self.queues = QueueStateTable()
        self.spaces: dict[str, VirtualHostState] = {}
        self._partial: dict[str, list[InSpace]] = {}
        self._parts: dict[str, int] = {}

    def replay(self, fact: ShardFact) -> None:
        """Apply a stored fact."""
        if isinstance(fact, SpaceFact):
            self.space(fact.namespace).replay(fact.fact)
        elif isinstance(fact, SpacePart):
            self._take_part(fact)
        else:
            self.queues.replay(fact)

    def space(self, namespace: str) -> VirtualHostState:
        """The state of a virtual host, created if missing."""
        state = self.spaces.get(namespace)
        if state is None:
            state = self.spaces[namespace] = self._new(namespace)
        return state

    def snapshot(self) -> Iterator[ShardFact]:
        """Facts from which the state can be rebuilt without those before."""
        yield from self.queues.snapshot()
        for namespace, state in self.spaces.items():
            pieces = list(state.snapshot())
            for part, facts in enumerate(pieces):
                yield SpacePart(namespace, part, part == len(pieces) - 1, facts)

    def _new(self, namespace: str) -> VirtualHostState:
        has_queue = self._has_queue
        return VirtualHostState(lambda name: has_queue(namespace, name))

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
        state = self.spaces[namespace] = self._new(namespace)
        for each in self._partial.pop(namespace):
            state.replay(each)
