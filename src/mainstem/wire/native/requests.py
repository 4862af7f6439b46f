"""Messages of a client.

The correlation number of the frame is repeated in the response. A request with the number 0 has no
response, unless it is refused.
"""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, field

from mainstem.wire.native.words import (
    NAMES_PER_FRAME_MAX,
    Count,
    Id,
    Messages,
    Numbers,
    WireQueueSettings,
    Word,
    WordReader,
)

Durability = Literal["committed", "written", "none"]
Policy = Literal["fail", "ignore", "override"]
Names = Annotated[list[str], Meta(max_length=NAMES_PER_FRAME_MAX)]
Conditions = Annotated[dict[str, bytes | None], Meta(max_length=64)]


class Connect(Word):
    """The first request: version, login and supported compressions."""

    version: Count = 1
    client: str = ""
    namespace: str = "/"
    mechanism: str = ""
    response: bytes = b""
    compression: Names = field(default_factory=list)
    heartbeat_ms: Count = 0


class Respond(Word):
    """The response to a challenge."""

    data: bytes


class Ping(Word):
    """Checks that the node responds."""


class Publish(Word):
    """Publishes messages to an exchange, or by default to the queue that ``key`` names."""

    messages: Messages
    exchange: str = ""
    key: str | None = None
    durability: Durability = "committed"


class Subscribe(Word):
    """Subscribes to a queue, under a number that the client chooses."""

    subscription: Id
    queue: str
    window: Annotated[int, Meta(ge=0, le=100_000)] = 100
    window_bytes: Count = 0
    credit: Count | None = None
    no_ack: bool = False
    exclusive: bool = False
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    name: str = ""
    subscriber: str | None = None


class Credit(Word):
    """Grants credit to a subscription that uses it."""

    subscription: Id
    messages: Count


class Unsubscribe(Word):
    """Ends a subscription. Unsettled deliveries return to the queue, unless ``keep`` is set."""

    subscription: Id
    keep: bool = False


class Get(Word):
    """Gets one message, if one is ready; it is settled under subscription 0."""

    queue: str
    no_ack: bool = False


class Ack(Word):
    """Acknowledges deliveries."""

    subscription: Id
    numbers: Numbers


class Nack(Word):
    """Returns deliveries to the queue, after a failed attempt or unprocessed."""

    subscription: Id
    numbers: Numbers
    failed: bool = True
    delay_ms: Count | None = None


class Reject(Word):
    """Rejects deliveries: they become dead letters if the queue has a dead letter exchange."""

    subscription: Id
    numbers: Numbers
    reason: Literal["rejected", "bad-payload", "handler-error"] = "rejected"


class DeclareQueue(Word):
    """Declares a queue; ``passive`` only checks that it exists."""

    name: str
    settings: WireQueueSettings = WireQueueSettings()
    preset: Literal["native", "plain"] = "native"
    policy: Policy = "fail"
    passive: bool = False


class DeleteQueue(Word):
    """Deletes a queue."""

    name: str
    if_unused: bool = False
    if_empty: bool = False


class PurgeQueue(Word):
    """Drops all messages of a queue that are not being delivered."""

    name: str


class ListQueues(Word):
    """Lists the queues of the namespace."""


class DescribeQueue(Word):
    """Describes one queue."""

    name: str


class BrowseQueue(Word):
    """Browses messages from a sequence number on."""

    name: str
    start: Count = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class MoveMessages(Word):
    """Moves ready messages to another queue; without ``to``, dead letters go to their origin."""

    name: str
    to: str | None = None
    limit: Count | None = None


class DeclareExchange(Word):
    """Declares an exchange; ``shared`` uses an existing topic of that name."""

    name: str
    kind: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None
    delayed: bool = False
    passive: bool = False
    shared: bool = False


class DeleteExchange(Word):
    """Deletes an exchange."""

    name: str
    if_unused: bool = False


class ListExchanges(Word):
    """Lists the exchanges of the namespace."""


class Bind(Word):
    """Binds a queue or, with ``to_exchange``, another exchange to an exchange."""

    exchange: str
    to: str
    key: str = ""
    headers: Conditions = field(default_factory=dict)
    to_exchange: bool = False


class Unbind(Word):
    """Deletes a binding."""

    exchange: str
    to: str
    key: str = ""
    headers: Conditions = field(default_factory=dict)
    to_exchange: bool = False


class ListBindings(Word):
    """Lists the bindings of the namespace."""


class CreateTopic(Word):
    """Creates a topic; -1 is the node's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Annotated[dict[str, str], Meta(max_length=256)] = field(default_factory=dict)


class DeleteTopic(Word):
    """Deletes a topic and its records."""

    name: str


class ListTopics(Word):
    """Lists all topics."""


class Append(Word):
    """Appends messages to a topic; without a partition the key selects it, as in Kafka."""

    topic: str
    messages: Messages
    partition: Id | None = None
    durability: Durability = "committed"


class Read(Word):
    """Reads records of a partition from an offset on; optionally waits for the first one."""

    topic: str
    partition: Id = 0
    offset: Annotated[int, Meta(ge=-2, le=2**62)] = -2
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 500
    bytes_max: Annotated[int, Meta(ge=1, le=8 << 20)] = 1 << 20
    wait_ms: Annotated[int, Meta(ge=0, le=300_000)] = 0


Request = (
    Connect
    | Respond
    | Ping
    | Publish
    | Subscribe
    | Credit
    | Unsubscribe
    | Get
    | Ack
    | Nack
    | Reject
    | DeclareQueue
    | DeleteQueue
    | PurgeQueue
    | ListQueues
    | DescribeQueue
    | BrowseQueue
    | MoveMessages
    | DeclareExchange
    | DeleteExchange
    | ListExchanges
    | Bind
    | Unbind
    | ListBindings
    | CreateTopic
    | DeleteTopic
    | ListTopics
    | Append
    | Read
)

_reader: Final = WordReader(Request)


def read_request(body: Any) -> Any:
    """Decodes a message of a client; raises ``NotAWord`` if it is invalid."""
    return _reader.read(body)
