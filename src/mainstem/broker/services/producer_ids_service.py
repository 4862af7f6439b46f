"""Producer ids, assigned from blocks that the catalogue reserves durably."""

from mainstem.model.ids import NodeId, ProducerId
from mainstem.placement.changes.commands import AllocateProducerIds
from mainstem.placement.service import PlacementService

BLOCK = 1_000


class ProducerIdBlocks:
    """New ids for idempotent producers. A crash loses the unused part of a block."""

    def __init__(self, placement: PlacementService, node: NodeId, incarnation: int) -> None:
        self._placement = placement
        self._node = node
        self._incarnation = incarnation
        self._next = 0
        self._until = 0

    async def new_producer_id(self) -> tuple[ProducerId, int]:
        """A new producer id, and its first epoch."""
        while self._next == self._until:
            start, until = await self._placement.submit(
                AllocateProducerIds(self._node, self._incarnation, BLOCK)
            )
            if self._next == self._until:  # no concurrent call refilled it meanwhile
                self._next, self._until = start, until
        taken = ProducerId(self._next)
        self._next += 1
        return taken, 0
