"""What a node says: answers, which bear the number of the question, and news, which bear 0."""

from typing import Any, Final

from msgspec import Struct, field

from mainstem.wire.native.words import Error, Ok, WireMessage, WireQueueSettings, Word, WordReader


class Challenge(Word):
    """The login goes on."""

    data: bytes


class Connected(Word):
    """The client is in; what holds on this connection."""

    version: int
    server: str = ""
    cluster: str = ""
    node: int = 0
    user: str = ""
    compression: str = "none"
    frame_bytes_max: int = 0
    heartbeat_ms: int = 0
    data: bytes = b""  # the last word of the login, where the mechanism has one


class Pong(Word):
    """Answers ``Ping``."""


class Refused(Struct, omit_defaults=True, frozen=True):
    """A message of a publish that was not stored, by its place."""

    place: int
    error: Error


class Published(Word):
    """How many messages are stored, which reached no queue, and which were refused."""

    stored: int
    unrouted: list[int] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class WireDelivery(Struct, omit_defaults=True, kw_only=True, gc=False):
    """One message in the client's hands, settled by its number."""

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
    """A subscription is over, not by the client's doing."""

    subscription: int
    error: Error | None = None


class Flow(Word):
    """Whether to publish: false asks to wait."""

    publish: bool


class Goodbye(Word):
    """The node ends the connection: finish what is in hand within ``grace_ms``, come again."""

    error: Error
    grace_ms: int = 0


class Got(Word):
    """The answer to a get; ``left`` is how many are ready still."""

    delivery: WireDelivery | None = None
    left: int = 0


class QueueStatus(Word):
    """A queue as its declaration finds it."""

    name: str
    messages: int = 0
    consumers: int = 0
    is_new: bool = False


class Counted(Word):
    """How many messages."""

    messages: int


class QueueInfo(Struct, omit_defaults=True, kw_only=True):
    """A queue as it is."""

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
    """A message where it stands: ready, delayed, unsettled or dying."""

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
    """An exchange as it is."""

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
    """A binding as it is."""

    exchange: str
    to: str
    key: str = ""
    headers: dict[str, bytes | None] = {}
    to_exchange: bool = False


class BindingList(Word):
    """A list of bindings."""

    bindings: list[BindingInfo]


class WireTopic(Struct, omit_defaults=True, kw_only=True):
    """A topic as it is."""

    name: str
    partitions: int
    configs: dict[str, str] = {}


class TopicList(Word):
    """A list of topics."""

    topics: list[WireTopic]


class Place(Struct, omit_defaults=True, frozen=True, kw_only=True):
    """Where a message was stored."""

    partition: int
    offset: int


class Appended(Word):
    """Where each message was stored, in the order of the messages."""

    places: list[Place]


class WireRecord(Struct, omit_defaults=True, kw_only=True, gc=False):
    """One record of a topic."""

    offset: int
    message: WireMessage


class Records(Word):
    """Records, the offset to go on from, and where the partition begins and ends."""

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
    | QueueStatus
    | Counted
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
    """What a node said; ``NotAWord`` where that is not understood."""
    return _reader.read(body)
