"""Bodies of HTTP requests and answers about queues, exchanges and bindings."""

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
    ready: Annotated[int, Meta(description="Messages that a consumer could have now.")]
    unsettled: Annotated[int, Meta(description="Messages that somebody has in hand.")]
    delayed: Annotated[int, Meta(description="Messages that wait for their time.")]
    dying: Annotated[int, Meta(description="Messages whose dead letter is on its way.")]
    total: int
    total_bytes: int
    consumers: int


class QueueRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue should be like."""

    durable: bool = True
    auto_delete: bool = False
    arguments: Arguments = {}
    on_difference: Annotated[
        str,
        Meta(
            pattern="^(fail|ignore|override)$",
            description="What to do where the queue is there and differs.",
        ),
    ] = "fail"


class QueueDeleted(Struct, frozen=True, kw_only=True):
    """The queue is gone, with so many messages that were ready."""

    deleted: str
    messages: int


class Counted(Struct, frozen=True, kw_only=True):
    """How many messages it was."""

    messages: int


class Accepted(Struct, frozen=True, kw_only=True):
    """Messages that were published: stored, and of these how many reach no queue."""

    stored: int
    unrouted: int


class TakeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many messages to take; what was taken is settled."""

    count: Annotated[int, Meta(ge=1, le=TAKEN_MAX)] = 1


class MoveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages go where; without a destination dead letters go back where they died first."""

    destination: str | None = None
    where: Annotated[
        dict[str, str],
        Meta(description="reason, queue, exchange, key, attempts, header.<name>; * is anything."),
    ] = {}
    limit: Annotated[int, Meta(ge=1)] | None = None


class DeathAnswer(Struct, frozen=True, kw_only=True):
    """One death of a message."""

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
    """One exchange, and the topic that keeps what is published to it."""

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
    """What an exchange should be like."""

    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    shared: Annotated[
        bool, Meta(description="Take over a topic of that name that is there already.")
    ] = False
    arguments: Arguments = {}


class ExchangeDeleted(Struct, frozen=True, kw_only=True):
    """The exchange is gone."""

    deleted: str


class BindingBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A way from an exchange to a queue, or to another exchange."""

    source: str
    destination: str
    destination_type: Annotated[str, Meta(pattern="^(queue|exchange)$")] = "queue"
    key: str = ""
    arguments: dict[str, Any] = {}
