"""Records that could not be delivered: the first one that nobody asked about, and the first at all.

Pure. A failure that the caller has awaited is known to it; any other must be reported some time.
"""

from mainstem.client.producing.outbox import ProducerBatch
from mainstem.model.errors import MainstemError


class DeliveryFailures:
    """What a producer failed to deliver."""

    def __init__(self) -> None:
        self.first: MainstemError | None = None
        self._unseen: ProducerBatch | None = None

    def note(self, batch: ProducerBatch, error: MainstemError) -> None:
        """A batch has failed for good."""
        self.first = self.first or error
        if self._unseen is None and not batch.is_awaited():
            self._unseen = batch

    def report(self) -> None:
        """Raises the first failure that nobody has awaited, once."""
        batch, self._unseen = self._unseen, None
        if batch is not None and not batch.is_awaited():
            assert batch.error is not None, "only failed batches are kept"
            raise batch.error

    def raise_first(self) -> None:
        """Raises the first failure at all, if there was one."""
        if self.first is not None:
            raise self.first

    def reset(self) -> None:
        """What is lost up to now belongs to something that was given up as a whole."""
        self.first = None
        self._unseen = None
