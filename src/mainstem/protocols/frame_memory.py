"""One memory budget for everything that clients have sent and that is not served yet.

Incomplete frames, frames behind a request that is still being served, and incomplete messages of
all listeners share it. A connection that would exceed it is closed.
"""

from mainstem.model.limits import LARGE_FRAMES_BYTES_MAX
from mainstem.telemetry.metrics import Metrics


class FrameMemory:
    """Counts received bytes that are held, in a gauge of the node's metrics."""

    __slots__ = ("_metrics", "limit_bytes")

    def __init__(
        self, limit_bytes: int = LARGE_FRAMES_BYTES_MAX, metrics: Metrics | None = None
    ) -> None:
        self.limit_bytes = limit_bytes
        self._metrics = metrics or Metrics()

    @property
    def used_bytes(self) -> int:
        """The bytes held now."""
        return self._metrics.frame_bytes_held

    @property
    def is_near_limit(self) -> bool:
        """Whether less than a tenth of the budget is left."""
        return self._metrics.frame_bytes_held > 0.9 * self.limit_bytes

    def take(self, size: int) -> bool:
        """Reserve ``size`` bytes; False, and counted as a refusal, if that exceeds the limit."""
        metrics = self._metrics
        if metrics.frame_bytes_held + size > self.limit_bytes:
            metrics.frame_memory_refusals += 1
            return False
        metrics.frame_bytes_held += size
        return True

    def add(self, size: int) -> bool:
        """Count bytes already held; False, and counted as a refusal, if that exceeds the limit."""
        metrics = self._metrics
        metrics.frame_bytes_held += size
        if metrics.frame_bytes_held <= self.limit_bytes:
            return True
        metrics.frame_memory_refusals += 1
        return False

    def give_back(self, size: int) -> None:
        """Release ``size`` bytes."""
        self._metrics.frame_bytes_held -= size
