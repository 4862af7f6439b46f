"""Bodies of HTTP requests and responses about queues, exchanges and bindings."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from mainstem.protocols.rest.schemas.topics_and_groups import HeaderAnswer

TAKEN_MAX = 1_000

Arguments = Annotated[
    dict[str, Any], Meta(description="AMQP's arguments, such as x-message-ttl and x-max-length.")
]


class QueueAnswer(Struct, frozen=True, kw_only=True):
    """One queue."""

    name: str
    namespace: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Arguments
    ready: Annotated[int, Meta(description="Messages ready for delivery.")]
    unsettled: Annotated[int, Meta(description="Messages delivered and not yet settled.")]
    delayed: Annotated[int, Meta(description="Messages whose delay has not passed.")]
    dying: Annotated[int, Meta(description="Messages whose dead letter is being published.")]
    total: int
    total_bytes: int
    consumers: int


class QueueRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The desired queue."""

    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = {}
    on_difference: Annotated[
        str,
        Meta(
            pattern="^(fail|ignore|override)$",
            description="What to do if the queue exists with other settings.",
        ),
    ] = "fail"


class QueueDeleted(Struct, frozen=True, kw_only=True):
    """The deleted queue, and how many ready messages it had."""

    deleted: str
    messages: int


class Counted(Struct, frozen=True, kw_only=True):
    """The number of messages affected."""

    messages: int


class Accepted(Struct, frozen=True, kw_only=True):
    """How many messages were stored, and how many of these were routed to no queue."""

    stored: int
    unrouted: int


class TakeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many messages to consume; they are acknowledged at once."""

    count: Annotated[int, Meta(ge=1, le=TAKEN_MAX)] = 1


class MoveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to move; without a destination, dead letters return to x-first-death-queue."""

    destination: str | None = None
    where: Annotated[
        dict[str, str],
        Meta(description="reason, queue, exchange, key, attempts, header.<name>; * matches all."),
    ] = {}
    limit: Annotated[int, Meta(ge=1)] | None = None


class DeathAnswer(Struct, frozen=True, kw_only=True):
    """One dead-lettering of a message (an entry of x-death)."""

    queue: str
    reason: str
    count: int
    exchange: str
    routing_keys: list[str]
    time_ms: int


class QueuedMessage(Struct, frozen=True, kw_only=True, gc=False):
    """A message of a queue."""

    sequence: int
    key: str | None
    value: str | None
    key_encoding: str
    value_encoding: str
    headers: list[HeaderAnswer]
    timestamp: int
    exchange: str
    place: str
    attempts: int
    failures: int
    deaths: list[DeathAnswer]


class ExchangeAnswer(Struct, frozen=True, kw_only=True):
    """One exchange, and the topic that stores its messages."""

    name: str
    namespace: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    alternate: str | None
    delayed: bool
    topic: str
    bindings: int


class ExchangeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The desired exchange."""

    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    shared: Annotated[bool, Meta(description="Use an existing topic of that name.")] = False
    arguments: Arguments = {}


class ExchangeDeleted(Struct, frozen=True, kw_only=True):
    """The deleted exchange."""

    deleted: str


class BindingBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A binding of an exchange to a queue, or to another exchange."""

    source: str
    destination: str
    destination_type: Annotated[str, Meta(pattern="^(queue|exchange)$")] = "queue"
    key: str = ""
    arguments: dict[str, Any] = {}
