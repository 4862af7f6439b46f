"""The interface of a connection and of the node to a channel."""

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
    """Report that there is disk space, where it is not measured."""
    return True


class AmqpLimits(Struct, frozen=True, kw_only=True):
    """The limits that are announced to clients when they connect."""

    channels_max: int = CHANNELS_MAX
    frame_bytes_max: int = FRAME_BYTES
    heartbeat_s: int = HEARTBEAT_S
    message_bytes_max: int = MESSAGE_BYTES_MAX


class AmqpService(Struct, frozen=True, kw_only=True):
    """State that all AMQP sessions of a node share. ``new_name`` returns unguessable names."""

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
    """An open connection, as its channels see it."""

    namespace: str
    connection: str  # unique in the cluster
    user: str
    rights: Rights
    frame_max: int
    capabilities: frozenset[str]
    is_qos_for_channel: bool  # see ``handshake``
    runner: Runner
    write: Callable[[bytes], object]  # whole frames, sent at the end of this turn of the loop
    method: Callable[[int, Method], None]  # the same for one method on a channel
    unsent_bytes: Callable[[], int]  # bytes that the client has not accepted yet

    def charge(self, kind: str, size_bytes: int) -> int:
        """Charge usage to a quota; returns the time to wait, in milliseconds."""
        ...

    def refuse(self, channel: int, refusal: AmqpError, numbers: tuple[int, int]) -> None:
        """Close the channel or the connection, and send the reason."""
        ...

    def backlog_changed(self, size_bytes: int) -> None:
        """Add to (or subtract from) the bytes that busy channels buffer."""
        ...

    def overload_changed(self, change: int) -> None:
        """Change the number of overloaded channels by 1 or -1; reading stops while it is not 0."""
        ...

    def blocked(
        self, reason: str, is_blocked: Callable[[], bool], key: Hashable | None = None
    ) -> None:
        """Stop reading while a queue, a quota or a full disk blocks publishers.

        ``key`` distinguishes several blockers with the same reason.
        """
        ...

    def end(self, channel: int) -> None:
        """Close a channel at the client's request."""
        ...
