"""The settings of a queue, as given when it is declared.

Protocols say the same in theirs (``arguments`` reads those of AMQP). Without a word a queue behaves
as users of AMQP expect: no limits, no time-outs, messages returned at once. ``NATIVE`` is what a
queue of the native protocol begins with.
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
    """A queue of one namespace; AMQP calls the namespace a virtual host."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.name} in {self.namespace}"


class DeliveryMode(StrEnum):
    """Who gets a message."""

    ROUND_ROBIN = "round-robin"
    PRIORITY = "priority"
    FANOUT_WITH_ACK = "fan-out-with-ack"
    FANOUT = "fan-out"

    @property
    def is_fanout(self) -> bool:
        """Whether every subscriber gets every message."""
        return self in (DeliveryMode.FANOUT, DeliveryMode.FANOUT_WITH_ACK)


class Overflow(StrEnum):
    """What happens to a message that does not fit."""

    DROP_HEAD = "drop-head"
    REJECT_PUBLISH = "reject-publish"
    REJECT_PUBLISH_DLX = "reject-publish-dlx"
    BLOCK = "block"

    @property
    def needs_credit(self) -> bool:
        """Whether a publisher has to be told beforehand."""
        return self is not Overflow.DROP_HEAD


class QueueType(StrEnum):
    """What RabbitMQ would keep the queue as; here it decides what a declaration may say."""

    CLASSIC = "classic"
    QUORUM = "quorum"


class QueueSettings(Struct, frozen=True, kw_only=True):
    """One declaration. None stands for "no limit" and "never".

    It is stored in full: what is usual may change, what was declared does not.
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
    # How long a consumer may keep a message; how often one may fail, and be handed out at all.
    lease_ms: int | None = None
    max_attempts: int | None = None
    max_acquired: int | None = None
    # How long a failed message waits: first, at most, and how much longer each time.
    retry_ms: int = 0
    retry_max_ms: int = 120_000
    retry_factor: float = 2.0
    # How long an unnamed subscriber of a fan-out may stay away.
    absence_ms: int = 30_000
    # None: not declared by AMQP, or before types were kept; it may be declared as either.
    queue_type: QueueType | None = None

    @property
    def top_priority(self) -> int:
        """The highest priority that the queue tells apart."""
        if self.mode is DeliveryMode.PRIORITY and not self.max_priority:
            return NATIVE_PRIORITY_MAX
        return self.max_priority

    @property
    def is_kept(self) -> bool:
        """Whether the queue outlives its node: others are in memory only."""
        return self.durable and not self.exclusive

    @property
    def is_limited(self) -> bool:
        """Whether the length has a limit of its own."""
        return self.max_length is not None or self.max_length_bytes is not None

    @property
    def reports_failures(self) -> bool:
        """Whether clients of AMQP are told how often a message failed."""
        return self.queue_type is QueueType.QUORUM or self.max_attempts is not None

    def retry_delay_ms(self, failures: int) -> int:
        """How long a message waits after failing for the n-th time."""
        if not self.retry_ms:
            return 0
        # Past the point where the limit holds anyway the power would only grow out of bounds.
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
    """Where messages go that were tried often enough, if the settings limit that but do not say.

    None for queues that go with their connection or last consumer, and for dead letter queues.
    """
    is_wanted = settings.max_attempts is not None and settings.dead_letter_exchange is None
    is_lasting = settings.is_kept and not settings.auto_delete
    if not is_wanted or not is_lasting or name.endswith(DEAD_SUFFIX):
        return None
    dead = name + DEAD_SUFFIX
    return dead if len(dead.encode()) <= QUEUE_NAME_BYTES_MAX else None


def check_settings(settings: QueueSettings) -> None:
    """Refuse what cannot be meant.

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
        raise _refused("dead_letter_key", "there is no dead letter exchange")
    if settings.overflow is Overflow.REJECT_PUBLISH_DLX and settings.dead_letter_exchange is None:
        raise _refused("overflow", f"{settings.overflow} needs a dead letter exchange")
    if settings.mode.is_fanout and (settings.single_active or settings.top_priority):
        wrong = "single_active" if settings.single_active else "max_priority"
        raise _refused(wrong, f"every subscriber of a {settings.mode} queue gets all, in order")


def check_name(name: str, what: str) -> None:
    """Refuse names that AMQP could not carry."""
    if len(name.encode()) > QUEUE_NAME_BYTES_MAX:
        raise InvalidRequest(
            ErrorCode.INVALID_ARGUMENT,
            f"the name of a {what} has at most {QUEUE_NAME_BYTES_MAX} bytes",
            subject=name[:40],
        )


def _refused(name: str, cause: str) -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_ARGUMENT, f"{name}: {cause}", subject=name)
