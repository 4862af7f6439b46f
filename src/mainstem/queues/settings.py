"""The settings of a queue, as given when it is declared.

Protocols have their own names for them (``arguments`` reads those of AMQP). By default a queue
behaves as users of AMQP expect: no limits, no time-outs, messages returned at once. ``NATIVE`` has
the defaults of the native protocol.
"""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import QUEUE_NAME_BYTES_MAX, QUEUE_PRIORITY_MAX

# Critical, high, normal, low.
NATIVE_PRIORITY_MAX = 3
DEAD_SUFFIX = ".dead"
DURATION_MS_MAX = 2**32 - 1
COUNT_MAX = 2**63 - 1


class QueueName(NamedTuple):
    """The name of a queue and its namespace, AMQP's virtual host."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} in {self.namespace}"


class DeliveryMode(StrEnum):
    """Which consumers get a message."""

    ROUND_ROBIN = "round-robin"
    PRIORITY = "priority"
    FANOUT_WITH_ACK = "fan-out-with-ack"
    FANOUT = "fan-out"

    @property
    def is_fanout(self) -> bool:
        """Whether every subscriber gets every message."""
        return self in (DeliveryMode.FANOUT, DeliveryMode.FANOUT_WITH_ACK)


class Overflow(StrEnum):
    """What happens to a message that exceeds a limit."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"
    BLOCK = "block"

    @property
    def needs_credit(self) -> bool:
        """Whether publishes have to be refused or blocked beforehand."""
        return self is not Overflow.DROP_HEAD


class QueueType(StrEnum):
    """RabbitMQ's queue type; here it only restricts what a declaration may contain."""

    CLASSIC = "classic"
    QUORUM = "quorum"


class QueueSettings(Struct, frozen=True, kw_only=True):
    """The settings of one queue. None means "no limit" and "never".

    They are stored in full, so that changed defaults do not affect declared queues.
    """

    mode: DeliveryMode = DeliveryMode.ROUND_ROBIN
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    message_ttl_ms: int | None = None
    expires_ms: int | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: Overflow = Overflow.DROP_HEAD
    max_priority: int = 0
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    single_active: bool = False
    # Maximum time of a lease; maximum number of failures, and of deliveries in total.
    lease_ms: int | None = None
    max_attempts: int | None = None
    max_acquired: int | None = None
    # Delay of a failed message: first, maximum, and growth factor.
    retry_ms: int = 0
    retry_max_ms: int = 120_000
    retry_factor: float = 2.0
    # How long an unnamed subscriber of a fan-out may be absent.
    absence_ms: int = 30_000
    # None: not declared by AMQP, or before types were stored; it may be declared as either.
    queue_type: QueueType | None = None

    @property
    def top_priority(self) -> int:
        """The highest priority that the queue distinguishes."""
        if self.mode is DeliveryMode.PRIORITY and not self.max_priority:
            return NATIVE_PRIORITY_MAX
        return self.max_priority

    @property
    def is_kept(self) -> bool:
        """Whether the queue is durable: others are in memory only."""
        return self.durable and not self.exclusive

    @property
    def is_limited(self) -> bool:
        """Whether the length is limited."""
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def reports_failures(self) -> bool:
        """Whether AMQP clients get the number of failed deliveries of a message."""
        return self.queue_type is QueueType.QUORUM or self.max_attempts is not None

    def retry_delay_ms(self, failures: int) -> int:
        """The delay of a message after its n-th failure."""
        if not self.retry_ms:
            return 0
        # Above this exponent the maximum applies anyway, and the power could overflow.
        steps = min(failures - 1, 64)
        return int(min(self.retry_ms * self.retry_factor**steps, self.retry_max_ms))


NATIVE = QueueSettings(
    lease_ms=30_000,
    max_attempts=3,
    retry_ms=2_000,
    max_length=10_000,
    overflow=Overflow.REJECT_PUBLISH,
)


def default_dead_letter_queue(name: str, settings: QueueSettings) -> str | None:
    """The dead letter queue of a queue that limits attempts without a dead letter exchange.

    None for exclusive, transient and auto-delete queues, and for dead letter queues.
    """
    is_wanted = settings.max_attempts is not None and settings.dead_letter_exchange is None
    is_lasting = settings.is_kept and not settings.auto_delete
    if not is_wanted or not is_lasting or name.endswith(DEAD_SUFFIX):
        return None
    dead = name + DEAD_SUFFIX
    return dead if len(dead.encode()) <= QUEUE_NAME_BYTES_MAX else None


def check_settings(settings: QueueSettings) -> None:
    """Refuse invalid settings.

    Raises:
        InvalidRequest: with the name of the setting.
    """
    bounds = {
        "message_ttl_ms": (0, DURATION_MS_MAX),
        "expires_ms": (1, DURATION_MS_MAX),
        "max_length": (0, COUNT_MAX),
        "max_length_bytes": (0, COUNT_MAX),
        "max_priority": (0, QUEUE_PRIORITY_MAX),
        "lease_ms": (1, DURATION_MS_MAX),
        "max_attempts": (1, COUNT_MAX),
        "max_acquired": (1, COUNT_MAX),
        "retry_ms": (0, DURATION_MS_MAX),
        "retry_max_ms": (0, DURATION_MS_MAX),
        "absence_ms": (0, DURATION_MS_MAX),
    }
    for name, (low, high) in bounds.items():
        value = getattr(settings, name)
        if value is not None and not low <= value <= high:
            raise _refused(name, f"{value} is not between {low} and {high}")
    if not 1 <= settings.retry_factor <= 1_000:
        raise _refused("retry_factor", f"{settings.retry_factor} is not between 1 and 1000")
    if settings.dead_letter_key is not None and settings.dead_letter_exchange is None:
        raise _refused("dead_letter_key", "no dead letter exchange is set")
    if settings.overflow is Overflow.REJECT_PUBLISH_DLX and settings.dead_letter_exchange is None:
        raise _refused("overflow", f"{settings.overflow} needs a dead letter exchange")
    if settings.mode.is_fanout and (settings.single_active or settings.top_priority):
        wrong = "single_active" if settings.single_active else "max_priority"
        raise _refused(wrong, f"not supported by a {settings.mode} queue")


def check_name(name: str, what: str) -> None:
    """Refuse names that are too long for AMQP."""
    if len(name.encode()) > QUEUE_NAME_BYTES_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_ARGUMENT,
            f"the name of a {what} has at most {QUEUE_NAME_BYTES_MAX} bytes",
            subject=name[:40],
        )


def _refused(name: str, cause: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_ARGUMENT, f"{name}: {cause}", subject=name)
