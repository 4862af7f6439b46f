"""The state of one partition of the internal topic: its queues and virtual hosts.

``replay`` applies both kinds of facts in the order in which they were stored; ``snapshot`` returns
an equivalent, shorter sequence of facts.
"""

from collections.abc import Callable, Iterator

from mainstem.queues.facts import QueueFact
from mainstem.queues.storage.queue_state import QueueStateTable
from mainstem.queues.storage.virtual_host_state import (
    VirtualHostChange,
    VirtualHostFact,
    VirtualHostSnapshotPart,
    VirtualHostState,
)

ShardFact = QueueFact | VirtualHostFact | VirtualHostSnapshotPart
HasQueue = Callable[[str, str], bool]


class ShardState:
    """Holds the queues and virtual hosts of one internal partition."""

    def __init__(self, has_queue: HasQueue) -> None:
        self._has_queue = has_queue
        self.queues = QueueStateTable()
        self.virtual_hosts: dict[str, VirtualHostState] = {}
        self._partial: dict[str, list[VirtualHostChange]] = {}
        self._parts: dict[str, int] = {}

    def replay(self, fact: ShardFact) -> None:
        """Apply a stored fact."""
        if isinstance(fact, VirtualHostFact):
            self.virtual_host(fact.namespace).replay(fact.fact)
        elif isinstance(fact, VirtualHostSnapshotPart):
            self._take_part(fact)
        else:
            self.queues.replay(fact)

    def virtual_host(self, namespace: str) -> VirtualHostState:
        """The state of a virtual host, created if missing."""
        state = self.virtual_hosts.get(namespace)
        if state is None:
            state = self.virtual_hosts[namespace] = self._new(namespace)
        return state

    def snapshot(self) -> Iterator[ShardFact]:
        """Facts from which the state can be rebuilt without those before."""
        yield from self.queues.snapshot()
        for namespace, state in self.virtual_hosts.items():
            pieces = list(state.snapshot())
            for part, facts in enumerate(pieces):
                yield VirtualHostSnapshotPart(namespace, part, part == len(pieces) - 1, facts)

    def _new(self, namespace: str) -> VirtualHostState:
        has_queue = self._has_queue
        return VirtualHostState(lambda name: has_queue(namespace, name))

    def _take_part(self, fact: VirtualHostSnapshotPart) -> None:
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
        state = self.virtual_hosts[namespace] = self._new(namespace)
        for each in self._partial.pop(namespace):
            state.replay(each)
