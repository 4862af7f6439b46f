"""Time-out of a suspicion: the fewer nodes confirm it, the longer.

A node that is the only one without answers of another is likely to be slow itself. So a suspicion
starts with the longest time-out; each independent confirmation shortens it, down to a minimum
(Lifeguard).
"""

import math

from mainstem.cluster.gossip.settings import GossipSettings
from mainstem.model.ids import NodeId

CONFIRMATIONS_BESIDE_FACTOR = 2


class Suspicion:
    """One running suspicion."""

    __slots__ = ("_confirmations_wanted", "_max_s", "_min_s", "began_at_s", "deadline_s", "origins")

    def __init__(
        self, origin: NodeId, members: int, settings: GossipSettings, now_s: float
    ) -> None:
        wanted = settings.suspicion_factor - CONFIRMATIONS_BESIDE_FACTOR
        # The suspect and this node cannot confirm: in a small cluster no confirmation is expected.
        self._confirmations_wanted = wanted if members - 2 >= wanted else 0
        timeout = settings.suspicion_factor * max(1.0, math.log10(max(1, members)))
        self._min_s = timeout * settings.probe_interval_s
        self._max_s = self._min_s * settings.suspicion_stretch
        self.began_at_s = now_s
        self.origins = {origin}
        self.deadline_s = now_s + self._timeout_s()

    def confirm(self, origin: NodeId) -> bool:
        """Another node confirms the suspicion; whether that is new and shortens the time-out."""
        if origin in self.origins or len(self.origins) > self._confirmations_wanted:
            return False
        self.origins.add(origin)
        self.deadline_s = self.began_at_s + self._timeout_s()
        return True

    def _timeout_s(self) -> float:
        if self._confirmations_wanted == 0:
            return self._min_s
        share = math.log(len(self.origins)) / math.log(self._confirmations_wanted + 1)
        return max(self._min_s, self._max_s - share * (self._max_s - self._min_s))
