"""Windows that the consumers of a channel share (AMQP's global prefetch)."""

from mainstem.queues.engine.consumer_window import ConsumerWindow
from mainstem.queues.shards.subscription_driver import QueueSubscription


class SharedWindows:
    """Offers the space of a shared window to the consumers that share it."""

    def __init__(self) -> None:
        self._sharing: dict[int, dict[QueueSubscription, None]] = {}

    def share(self, subscription: QueueSubscription) -> None:
        """Register a consumer with a shared window."""
        self._sharing.setdefault(id(subscription.consumer.shared), {})[subscription] = None

    def changed(self, shared: ConsumerWindow) -> None:
        """Offer free space of a window to its consumers: first to the one that holds least."""
        sharing = self._sharing.get(id(shared), {})
        for subscription in sorted(sharing, key=_held):
            if not subscription.is_open:
                del sharing[subscription]
                continue
            before = shared.unsettled
            subscription.changed()
            if shared.unsettled > before:
                # It got a message: the others come first the next time.
                del sharing[subscription]
                sharing[subscription] = None
        if not sharing:
            self._sharing.pop(id(shared), None)

    def forget(self) -> None:
        """Reset before a reload: all subscriptions have ended."""
        self._sharing.clear()


def _held(subscription: QueueSubscription) -> int:
    return subscription.consumer.window.unsettled
