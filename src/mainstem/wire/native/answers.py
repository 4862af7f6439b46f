"""Messages of a node: responses, with the number of the request, and notifications, with 0."""

from typing import Any, Final

from msgspec import Struct, field

from mainstem.wire.native.words import Error, Ok, WireMessage, WireQueueSettings, Word, WordReader


class Challenge(Word):
    """A SASL challenge."""

    data: bytes


class Connected(Word):
    """Completes the login, with the parameters of the connection."""

    version: int
    server: str = ""
    cluster: str = ""
    node: int = 0
    user: str = ""
    compression: str = "none"
    frame_bytes_max: int = 0
    heartbeat_ms: int = 0
    data: bytes = b""  # the final message of the mechanism, if it has one


class Pong(Word):
    """Answers ``Ping``."""


class RefusedMessage(Struct, omit_defaults=True, frozen=True):
    """A message of a publish that was not stored, by its index."""

    place: int
    error: Error


class Published(Word):
    """How many messages are stored, which were routed to no queue, and which were refused."""

    stored: int
    unrouted: list[int] = field(default_factory=list)
    refused: list[RefusedMessage] = field(default_factory=list)


class WireDelivery(Struct, omit_defaults=True, kw_only=True, gc=False):
    """One delivery, settled by its number."""

    number: int
    message: WireMessage
    exchange: str = ""
    attempt: int = 1
    failures: int = 0
    sequence: int = 0


class Deliver(Word):
    """Messages for a subscription."""

    subscription: int
    deliveries: list[WireDelivery]


class Ended(Word):
    """The node ended a subscription."""

    subscription: int
    error: Error | None = None


class Flow(Word):
    """Flow control of publishes: false asks the client to wait."""

    publish: bool


class Goodbye(Word):
    """The node closes the connection: settle deliveries within ``grace_ms``, then reconnect."""

    error: Error
    grace_ms: int = 0


class Got(Word):
    """The response to a get; ``left`` is how many are still ready."""

    delivery: WireDelivery | None = None
    left: int = 0


class DeclaredQueue(Word, tag="queue-status"):
    """The response to a declaration of a queue."""

    name: str
    messages: int = 0
    consumers: int = 0
    is_new: bool = False


class MessageCount(Word, tag="counted"):
    """A number of messages."""

    messages: int


class QueueInfo(Struct, omit_defaults=True, kw_only=True):
    """The state of a queue."""

    name: str
    ready: int = 0
    unsettled: int = 0
    delayed: int = 0
    total: int = 0
    total_bytes: int = 0
    consumers: int = 0
    settings: WireQueueSettings = WireQueueSettings()


class QueueList(Word):
    """A list of queues."""

    queues: list[QueueInfo]


class BrowsedMessage(Struct, omit_defaults=True, kw_only=True):
    """A message and its state: ready, delayed, unsettled or being dead-lettered."""

    sequence: int
    message: WireMessage
    exchange: str = ""
    place: str = "ready"
    attempts: int = 0
    failures: int = 0


class BrowsedList(Word):
    """Messages of a queue."""

    messages: list[BrowsedMessage]


class ExchangeInfo(Struct, omit_defaults=True, kw_only=True):
    """The settings of an exchange."""

    name: str
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None
    delayed: bool = False
    topic: str = ""


class ExchangeList(Word):
    """A list of exchanges."""

    exchanges: list[ExchangeInfo]


class BindingInfo(Struct, omit_defaults=True, kw_only=True):
    """A binding."""

    exchange: str
    to: str
    key: str = ""
    headers: dict[str, bytes | None] = {}
    to_exchange: bool = False


class BindingList(Word):
    """A list of bindings."""

    bindings: list[BindingInfo]


class WireTopic(Struct, omit_defaults=True, kw_only=True):
    """A topic."""

    name: str
    partitions: int
    configs: dict[str, str] = {}


class TopicList(Word):
    """A list of topics."""

    topics: list[WireTopic]


class RecordPosition(Struct, omit_defaults=True, frozen=True, kw_only=True):
    """Partition and offset of a stored message."""

    partition: int
    offset: int


class Appended(Word):
    """Partition and offset of each message, in the order of the messages."""

    places: list[RecordPosition]


class WireRecord(Struct, omit_defaults=True, kw_only=True, gc=False):
    """One record of a topic."""

    offset: int
    message: WireMessage


class Records(Word):
    """Records, the offset to continue from, and the start and end of the partition."""

    records: list[WireRecord]
    next_offset: int
    start_offset: int = 0
    end_offset: int = 0


Answer = (
    Error
    | Ok
    | Challenge
    | Connected
    | Pong
    | Published
    | Deliver
    | Ended
    | Flow
    | Goodbye
    | Got
    | DeclaredQueue
    | MessageCount
    | QueueList
    | BrowsedList
    | ExchangeList
    | BindingList
    | TopicList
    | Appended
    | Records
)

_reader: Final = WordReader(Answer)


def read_answer(body: Any) -> Any:
    """Decodes a message of a node; raises ``NotAWord`` if it is invalid."""
    return _reader.read(body)
