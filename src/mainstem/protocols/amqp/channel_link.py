"""What a channel sees of its connection and of the node."""

from collections.abc import Callable, Hashable
from typing import Final, Protocol

from msgspec import Struct, field

from mainstem.broker.api.queues import Queues
from mainstem.broker.api.security import Rights, Security
from mainstem.model.clock import Clock
from mainstem.model.limits import KIB, MIB
from mainstem.protocols.amqp.convert import Converter
from mainstem.protocols.amqp.direct_reply import PendingReplies
from mainstem.protocols.amqp.errors import AmqpError
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.protocols.runner import Runner
from mainstem.wire.amqp.method import Method

CHANNELS_MAX: Final = 2_047
FRAME_BYTES: Final = 128 * KIB
HEARTBEAT_S: Final = 60
MESSAGE_BYTES_MAX: Final = 16 * MIB


def always() -> bool:
    """Whether there is space where nobody measures it."""
    return True


class AmqpLimits(Struct, frozen=True, kw_only=True):
    """What clients are told when they connect."""

    channels_max: int = CHANNELS_MAX
    frame_bytes_max: int = FRAME_BYTES
    heartbeat_s: int = HEARTBEAT_S
    message_bytes_max: int = MESSAGE_BYTES_MAX


class AmqpService(Struct, frozen=True, kw_only=True):
    """What all AMQP sessions of a node share. ``new_name`` gives names that nobody guesses."""

    queues: Queues
    security: Security
    clock: Clock
    limits: AmqpLimits
    new_name: Callable[[], str]
    cluster_name: str
    version: str
    converter: Converter
    replies: PendingReplies
    memory: FrameMemory = field(default_factory=FrameMemory)
    has_space: Callable[[], bool] = always  # whether this node's disk has space for messages


class ChannelLink(Protocol):
    """One connection that is open, as its channels see it."""

    namespace: str
    connection: str  # a name that no other connection of the cluster has
    user: str
    rights: Rights
    frame_max: int
    capabilities: frozenset[str]
    is_qos_for_channel: bool  # see ``handshake``
    runner: Runner
    write: Callable[[bytes], object]  # whole frames, sent with all others of this turn of the loop
    method: Callable[[int, Method], None]  # the same of one method on a channel
    unsent_bytes: Callable[[], int]  # what the client has not taken yet

    def charge(self, kind: str, size_bytes: int) -> int:
        """Count what is used of a limited good; how long to wait, in milliseconds."""
        ...

    def refuse(self, channel: int, refusal: AmqpError, numbers: tuple[int, int]) -> None:
        """End the channel, or the connection, and say why."""
        ...

    def backlog_changed(self, size_bytes: int) -> None:
        """A channel that waits for an answer keeps more, or less, of what came meanwhile."""
        ...

    def overload_changed(self, change: int) -> None:
        """One more channel, or one less (-1), has too much in flight: read no more meanwhile."""
        ...

    def blocked(
        self, reason: str, is_blocked: Callable[[], bool], key: Hashable | None = None
    ) -> None:
        """Read no more while a queue, a quota or a full disk makes publishers wait.

        ``key`` tells several of one reason apart.
        """
        ...

    def end(self, channel: int) -> None:
        """The client closes a channel."""
        ...
