"""News on its way: each piece is passed on a limited number of times, the least told first.

At most one piece about a node waits: newer news replaces older.
"""

import math
from collections.abc import Callable

from mainstem.cluster.gossip.member import Claim
from mainstem.model.ids import NodeId  # noqa: TC001 - the annotation of an attribute


class Rumours:
    """What is still to be passed on.

    Args:
        retransmit_factor: how often, times the logarithm of the number of members.
        size_of: how many bytes of a datagram a claim takes.
    """

    def __init__(self, retransmit_factor: int, size_of: Callable[[Claim], int]) -> None:
        self._factor = retransmit_factor
        self._size_of = size_of
        self._told: dict[NodeId, tuple[int, Claim]] = {}

    def __len__(self) -> int:
        return len(self._told)

    def put(self, claim: Claim) -> None:
        """Fresh news."""
        # To the end of the row: at equal count the older piece goes first.
        self._told.pop(claim.node, None)
        self._told[claim.node] = (0, claim)

    def take(self, members: int, budget_bytes: int) -> list[Claim]:
        """What goes into a packet with so much room."""
        limit = self._factor * math.ceil(math.log10(members + 1))
        taken = []
        for node, (count, claim) in sorted(self._told.items(), key=lambda item: item[1][0]):
            size = self._size_of(claim)
            if size > budget_bytes:
                continue
            budget_bytes -= size
            taken.append(claim)
            if count + 1 >= limit:
                del self._told[node]
            else:
                self._told[node] = (count + 1, claim)
        return taken
