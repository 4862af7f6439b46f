"""Direct reply-to: answers go straight to the channel that asked, through no queue.

A channel that consumes from ``amq.rabbitmq.reply-to`` gets a name that nobody can guess; its
requests carry that name, and whoever publishes to it reaches the channel while it lives. Nothing is
stored: an answer to a channel that is gone is an answer to nobody.
"""

from collections.abc import Callable
from typing import Final

from mainstem.protocols.amqp.content_assembly import Content

REPLY_TO: Final = "amq.rabbitmq.reply-to"
PREFIX: Final = REPLY_TO + "."

# Whether the channel took it.
Take = Callable[[Content], bool]


class PendingReplies:
    """Who waits for answers on this node."""

    def __init__(self) -> None:
        self._waiting: dict[str, Take] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def open(self, name: str, take: Take) -> None:
        """A channel waits under this name."""
        self._waiting[name] = take

    def close(self, name: str) -> None:
        """It no longer does."""
        self._waiting.pop(name, None)

    def deliver(self, content: Content) -> bool:
        """Hand an answer over; whether somebody was there."""
        take = self._waiting.get(content.publish.key)
        return take is not None and take(content)
