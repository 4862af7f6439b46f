"""Failed deliveries: the first one that was not awaited, and the first of all.

Pure. A failure that the caller has awaited is known to it; any other must be reported later.
"""

from mainstem.client.producing.outbox import ProducerBatch
from mainstem.model.errors import MainstemError


class DeliveryFailures:
    """Tracks the failed batches of a producer."""

    def __init__(self) -> None:
        self.first: MainstemError | None = None
        self._unseen: ProducerBatch | None = None

    def note(self, batch: ProducerBatch, error: MainstemError) -> None:
        """Notes that a batch has failed permanently."""
        self.first = self.first or error
        if self._unseen is None and not batch.is_awaited():
            self._unseen = batch

    def report(self) -> None:
        """Raises the first failure that was not awaited, once."""
        batch, self._unseen = self._unseen, None
        if batch is not None and not batch.is_awaited():
            assert batch.error is not None, "only failed batches are kept"
            raise batch.error

    def raise_first(self) -> None:
        """Raises the first failure, if there was one."""
        if self.first is not None:
            raise self.first

    def reset(self) -> None:
        """Clears all failures, because their transaction was aborted."""
        self.first = None
        self._unseen = None
