"""A session without a socket, and somebody who talks to it in methods instead of bytes."""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tests.unit.protocols.amqp.queues_in_memory import QueuesInMemory

from mainstem.model.errors import MainstemError
from mainstem.protocols.amqp.channel_link import AmqpLimits, AmqpService
from mainstem.protocols.amqp.convert import Converter
from mainstem.protocols.amqp.direct_reply import PendingReplies
from mainstem.protocols.amqp.errors import AmqpError
from mainstem.protocols.amqp.mechanisms import WITHOUT_LOGIN
from mainstem.protocols.amqp.session import AmqpSession
from mainstem.protocols.frame_memory import FrameMemory
from mainstem.protocols.listener_policy import IncomingConnection, ListenerPolicy
from mainstem.protocols.runner import Done, Stop
from mainstem.security.authorisation.authoriser import AllRights
from mainstem.wire.amqp import basic_methods as basic
from mainstem.wire.amqp import connection_methods as connection
from mainstem.wire.amqp import frames
from mainstem.wire.amqp.method import Method
from mainstem.wire.amqp.method_codec import decode_method, encode_method
from mainstem.wire.amqp.properties import Properties, decode_properties, encode_properties

if TYPE_CHECKING:
    from mainstem.broker.api.queues import Queues
    from mainstem.broker.api.security import Security

M = TypeVar("M", bound=Method)
LIMITS = AmqpLimits(frame_bytes_max=4096, channels_max=10, message_bytes_max=100_000)


class Hand:
    """A runner that does everything at once, and a clock that is turned by hand."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.due: deque[Callable[[], None]] = deque()
        self.timers: list[tuple[int, Callable[[], None]]] = []

    def wall_ms(self) -> int:
        return self.now_ms

    def monotonic(self) -> float:
        return self.now_ms / 1_000

    def soon(self, call: Callable[[], None]) -> object:
        self.due.append(call)
        return None

    def later(self, delay_ms: int, call: Callable[[], None]) -> object:
        self.timers.append((self.now_ms + delay_ms, call))
        return None

    def run(self, work: Awaitable[Any], done: Done) -> Stop:
        def finish() -> None:
            try:
                next(iter(work.__await__()))
            except StopIteration as end:
                done(end.value, None)
            except (MainstemError, AmqpError) as error:
                done(None, error)
            else:
                raise AssertionError("nothing here takes time")

        self.due.append(finish)
        return lambda: self.due.remove(finish)

    def turn(self) -> None:
        """Do what is due, and what that brings."""
        for _ in range(10_000):
            if not self.due:
                return
            self.due.popleft()()
        raise AssertionError("it never ends")

    def pass_time(self, milliseconds: int) -> None:
        until = self.now_ms + milliseconds
        while self.timers and min(at for at, _ in self.timers) <= until:
            timer = min(self.timers, key=lambda each: each[0])
            self.timers.remove(timer)
            self.now_ms = timer[0]
            timer[1]()
            self.turn()
        self.now_ms = until


class _Quotas:
    limited = False

    def connection_refused(self, address: str, limit: int | None) -> bool:
        return False


class _Security:
    """Nobody has to log in, everybody may do everything."""

    quotas = _Quotas()

    def rights(self, *_: object, **__: object) -> AllRights:
        return AllRights()


class Received:
    """Something that the session sent: a method, and its content if it has one."""

    def __init__(self, channel: int, method: Method) -> None:
        self.channel = channel
        self.method = method
        self.properties = Properties()
        self.body = b""


class Dialogue:
    """See the module. ``unsent`` is what the client has not taken yet."""

    def __init__(
        self,
        queues: QueuesInMemory | None = None,
        hand: Hand | None = None,
        *,
        policy: ListenerPolicy | None = None,
        incoming: IncomingConnection | None = None,
        replies: PendingReplies | None = None,
    ) -> None:
        self.hand = hand or Hand()
        self.queues = queues or QueuesInMemory(self.hand.soon)
        self.sent = bytearray()
        self.state = "open"
        self.unsent = 0
        self.policy = policy or ListenerPolicy(
            security=cast("Security", _Security()), without_login=WITHOUT_LOGIN
        )
        self.has_space = True
        self.memory = FrameMemory()
        names = iter(range(1_000))
        service = AmqpService(
            queues=cast("Queues", self.queues),
            security=self.policy.security,
            clock=self.hand,
            limits=LIMITS,
            new_name=lambda: f"name-{id(self)}-{next(names)}",
            cluster_name="test",
            version="1",
            converter=Converter(),
            replies=replies or PendingReplies(),
            memory=self.memory,
            has_space=lambda: self.has_space,
        )
        self.session = AmqpSession(
            self,
            incoming or self.policy.incoming("127.0.0.1", 1, None),
            self.policy,
            service,
            self.hand,
        )

    # The connection's side

    @property
    def unsent_bytes(self) -> int:
        return self.unsent

    def send(self, chunks: Sequence[Any]) -> None:
        for chunk in chunks:
            self.sent += chunk

    def pause(self) -> None:
        self.state = "paused"

    def resume(self) -> None:
        self.state = "open"

    def close(self, *, drain_ms: int = 0) -> None:
        self.state = "closed"

    # The client's side

    def feed(self, data: bytes) -> tuple[int, int]:
        """Bytes, in one piece; how far the session got."""
        buf = bytearray(data)
        found = self.session.receive(buf, memoryview(buf), 0, len(buf))
        self.hand.turn()
        return found

    def say(self, method: Method, channel: int = 1) -> None:
        self.feed(frames.method_frame(channel, method))

    def ask(self, method: Method, answer: type[M], channel: int = 1) -> M:
        """Say something and get the one answer to it."""
        self.say(method, channel)
        [received] = self.heard()
        assert isinstance(received.method, answer), received.method
        assert received.channel == channel
        return received.method

    def ask_content(self, method: Method) -> Received:
        """Say something and get the one message that answers it."""
        self.say(method)
        [received] = self.heard()
        return received

    def publish(
        self,
        key: str,
        body: bytes = b"body",
        *,
        exchange: str = "",
        mandatory: bool = False,
        channel: int = 1,
        properties: Properties | None = None,
    ) -> None:
        method = basic.BasicPublish(exchange=exchange, routing_key=key, mandatory=mandatory)
        raw = encode_properties(properties or Properties())
        self.feed(frames.content_frames(channel, encode_method(method), raw, body, 4096))

    def heard(self) -> list[Received]:
        """All that came since the last time, contents put together, heartbeats left out."""
        found: list[Received] = []
        at = 0
        while at < len(self.sent):
            kind, channel, size = frames.HEAD.unpack_from(self.sent, at)
            start, until = at + 7, at + 7 + size
            assert self.sent[until] == frames.END
            assert size <= LIMITS.frame_bytes_max - 8
            if kind == frames.METHOD:
                found.append(Received(channel, decode_method(self.sent, start, until)))
            elif kind == frames.HEADER:
                found[-1].properties = decode_properties(self.sent, start + 12, until)
            elif kind == frames.BODY:
                found[-1].body += self.sent[start:until]
            at = until + 1
        self.sent.clear()
        return found

    def methods(self) -> list[Method]:
        return [each.method for each in self.heard()]

    def open(self, *, capabilities: Sequence[str] = (), heartbeat: int = 0) -> "Dialogue":
        """Shake hands, and open channel 1."""
        self.feed(frames.PROTOCOL_HEADER)
        said = {"capabilities": dict.fromkeys(capabilities, True)}
        self.say(
            connection.ConnectionStartOk(client_properties=said, response=b"\0guest\0guest"), 0
        )
        self.say(
            connection.ConnectionTuneOk(channel_max=10, frame_max=4096, heartbeat=heartbeat), 0
        )
        self.say(connection.ConnectionOpen(virtual_host="/"), 0)
        self.say(connection.ChannelOpen())
        assert isinstance(self.methods()[-1], connection.ChannelOpenOk)
        return self
