"""Queue of claims to gossip: each is sent a limited number of times, the least sent first.

At most one claim per node is queued: a newer one replaces an older one.
"""

import math
from collections.abc import Callable

from mainstem.cluster.gossip.member import Claim
from mainstem.model.ids import NodeId  # noqa: TC001 - the annotation of an attribute


class BroadcastQueue:
    """Claims that still have to be sent.

    Args:
        retransmit_factor: how often, times the logarithm of the number of members.
        size_of: how many bytes of a datagram a claim takes.
    """

    def __init__(self, retransmit_factor: int, size_of: Callable[[Claim], int]) -> None:
        self._factor = retransmit_factor
        self._size_of = size_of
        self._sent: dict[NodeId, tuple[int, Claim]] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def put(self, claim: Claim) -> None:
        """Queue a claim to be sent."""
        # Appended at the end: at equal count the older claim is sent first.
        self._sent.pop(claim.node, None)
        self._sent[claim.node] = (0, claim)

    def take(self, members: int, budget_bytes: int) -> list[Claim]:
        """The claims that fit into the space left in a packet."""
        limit = self._factor * math.ceil(math.log10(members + 1))
        taken = []
        for node, (count, claim) in sorted(self._sent.items(), key=lambda item: item[1][0]):
            size = self._size_of(claim)
            if size > budget_bytes:
                continue
            budget_bytes -= size
            taken.append(claim)
            if count + 1 >= limit:
                del self._sent[node]
            else:
                self._sent[node] = (count + 1, claim)
        return taken
