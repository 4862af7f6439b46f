"""What a client says.

Its number, the correlation of the frame, is in the answer. A word with the number 0 is not
answered, unless it is refused.
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
    """The first word: which version, who, and how frames may be compressed."""

    version: Count = 1
    client: str = ""
    namespace: str = "/"
    mechanism: str = ""
    response: bytes = b""
    compression: Names = field(default_factory=list)
    heartbeat_ms: Count = 0


class Respond(Word):
    """The answer to a challenge."""

    data: bytes


class Ping(Word):
    """Checks that the node answers."""


class Publish(Word):
    """Messages for an exchange, or with its default for the queue that ``key`` names."""

    messages: Messages
    exchange: str = ""
    key: str | None = None
    durability: Durability = "committed"


class Subscribe(Word):
    """Deliver messages of a queue under a number that the client chooses."""

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
    """So many more messages, for a subscription that counts credit."""

    subscription: Id
    messages: Count


class Unsubscribe(Word):
    """Deliver no more. What was delivered returns, unless ``keep`` says that it will be settled."""

    subscription: Id
    keep: bool = False


class Get(Word):
    """One message, if one is ready; it is settled under subscription 0."""

    queue: str
    no_ack: bool = False


class Ack(Word):
    """Done with these deliveries."""

    subscription: Id
    numbers: Numbers


class Nack(Word):
    """These go back: after a failed try, or untried."""

    subscription: Id
    numbers: Numbers
    failed: bool = True
    delay_ms: Count | None = None


class Reject(Word):
    """These are not to be tried again: dead letters, where the queue has a place for them."""

    subscription: Id
    numbers: Numbers
    reason: Literal["rejected", "bad-payload", "handler-error"] = "rejected"


class DeclareQueue(Word):
    """Let a queue be there; ``passive`` only asks."""

    name: str
    settings: WireQueueSettings = WireQueueSettings()
    preset: Literal["native", "plain"] = "native"
    policy: Policy = "fail"
    passive: bool = False


class DeleteQueue(Word):
    """Take a queue away."""

    name: str
    if_unused: bool = False
    if_empty: bool = False


class PurgeQueue(Word):
    """Drop what is in nobody's hands."""

    name: str


class ListQueues(Word):
    """Every queue of the namespace."""


class DescribeQueue(Word):
    """Describes one queue."""

    name: str


class BrowseQueue(Word):
    """Messages where they stand, from a sequence on."""

    name: str
    start: Count = 0
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100


class MoveMessages(Word):
    """Publish ready messages of a queue elsewhere; without ``to``, dead letters go back."""

    name: str
    to: str | None = None
    limit: Count | None = None


class DeclareExchange(Word):
    """Let an exchange be there; ``shared`` takes a topic of that name over."""

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
    """Take an exchange away."""

    name: str
    if_unused: bool = False


class ListExchanges(Word):
    """Every exchange of the namespace."""


class Bind(Word):
    """Let messages of an exchange go to a queue or, with ``to_exchange``, to another exchange."""

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
    """Every binding of the namespace."""


class CreateTopic(Word):
    """A new topic; -1 is what the node does without a number."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Annotated[dict[str, str], Meta(max_length=256)] = field(default_factory=dict)


class DeleteTopic(Word):
    """A topic and its records go."""

    name: str


class ListTopics(Word):
    """Lists all topics."""


class Append(Word):
    """Messages for a topic; without a partition each key has its own, as with Kafka's clients."""

    topic: str
    messages: Messages
    partition: Id | None = None
    durability: Durability = "committed"


class Read(Word):
    """Records of a partition from an offset on; waits for the first one if asked to."""

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
    """What a client said; ``NotAWord`` where that is not understood."""
    return _reader.read(body)
