"""Direct reply-to: replies go directly to the requesting channel, without a queue.

A channel that consumes from ``amq.rabbitmq.reply-to`` gets an unguessable name; its requests
carry that name, and a message published to it is sent to the channel while it is open. Nothing is
stored: a reply to a closed channel is dropped.
"""

from collections.abc import Callable
from typing import Final

from mainstem.protocols.amqp.content_assembly import Content

REPLY_TO: Final = "amq.rabbitmq.reply-to"
PREFIX: Final = REPLY_TO + "."

# Returns whether the channel accepted it.
Take = Callable[[Content], bool]


class PendingReplies:
    """The channels of this node that wait for replies, by reply name."""

    def __init__(self) -> None:
        self._waiting: dict[str, Take] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def open(self, name: str, take: Take) -> None:
        """Register a channel under a reply name."""
        self._waiting[name] = take

    def close(self, name: str) -> None:
        """Remove a reply name."""
        self._waiting.pop(name, None)

    def deliver(self, content: Content) -> bool:
        """Deliver a reply; returns whether the channel was there and accepted it."""
        take = self._waiting.get(content.publish.key)
        return take is not None and take(content)
