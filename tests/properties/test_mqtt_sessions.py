"""A session and a receiver that follows the standard, with connections lost and nodes killed.

Whatever happens, in the end every message of QoS 1 has arrived, every message of QoS 2 has arrived
once, and the first arrivals of each QoS are in order.
"""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.model.message import Message
from mainstem.protocols.mqtt.convert import Incoming, message_of
from mainstem.protocols.mqtt.sessions.backlog import READ_PENDING, ReadPending, StreamPosition
from mainstem.protocols.mqtt.sessions.client_session import (
    ClientSession,
    OutgoingMessage,
    SessionReader,
    Where,
)
from mainstem.protocols.mqtt.sessions.image import (
    SessionImage,
    image_of,
    restore_session,
    session_image,
)
from mainstem.protocols.mqtt.subscription_trie import Granted
from mainstem.wire.mqtt.packets import Publish, Subscription

NAMES = {0: "stream"}


class Receiver:
    """The client: it remembers numbers of QoS 2 over connections, as it must."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.arrived: list[tuple[int, bytes]] = []
        self.numbers: set[int] = set()


class Wire:
    """A connection: packets wait until the receiver looks at them."""

    def __init__(self, receiver: Receiver) -> None:
        self.window = receiver.window
        self.receiver = receiver
        self.coming: list[tuple[str, int, OutgoingMessage | None]] = []
        self.flying = 0

    has_space = True

    def may_read(self, _topic: str) -> bool:
        return True

    def send_message(self, sending: OutgoingMessage) -> bool:
        self.coming.append(("publish", sending.packet_id, sending))
        return True

    def send_release(self, packet_id: int) -> None:
        self.coming.append(("release", packet_id, None))

    def give_up(self) -> None:
        raise AssertionError("nothing failed")

    def taken_over(self) -> None:
        raise AssertionError("nobody else is there")


class FakeNode:
    """The node around one session: its log, and what of the session was committed."""

    def __init__(self, window: int, waiting_max: int) -> None:
        self.log: list[Incoming] = []
        self.position = 0
        self.waiting_max = waiting_max
        self.receiver = Receiver(window)
        self.wire: Wire | None = None
        self.image = b""
        self.unreadable = 0  # times that the log cannot be read
        self.asking: dict[SessionReader, None] = {}
        self.unsaved: list[Callable[[], None]] = []
        self.is_dirty = False
        self.session = ClientSession("c", self, waiting_max=waiting_max)
        self.session.expiry_s = 60
        self.session.subscriptions["t"] = Granted(Subscription("t", 2))
        self.is_dirty = True
        self.commit()

    def now_ms(self) -> int:
        return 0

    def fetch(self, where: Where) -> Incoming | ReadPending | None:
        assert isinstance(where, StreamPosition)
        if self.unreadable:
            self.unreadable -= 1
            return READ_PENDING
        return self.log[where.offset]

    def ask_again(self, reader: SessionReader) -> None:
        self.asking[reader] = None

    def slow(self) -> None:
        self.unreadable += 2

    def ask(self) -> None:
        asking, self.asking = self.asking, {}
        for reader in asking:
            reader.drain()

    def save(self, _session: ClientSession, then: Callable[[], None] | None = None) -> None:
        self.is_dirty = True
        if then is not None:
            self.unsaved.append(then)

    def catch_up(self, reader: SessionReader) -> None:
        start = reader.backlog.behind.pop(0)
        for offset in range(start, self.position):
            reader.backlog.put(StreamPosition(0, offset))
        reader.drain()

    def publish(self, qos: int) -> None:
        payload = b"%d" % len(self.log)
        self.log.append(Incoming(message_of(Publish("t", payload, qos), "p", 0), "t"))
        self.tail()

    def tail(self) -> None:
        while self.position < len(self.log):
            offset = self.position
            self.position += 1
            grants = self.session.grants_for("t")
            self.session.offer(StreamPosition(0, offset), self.log[offset], grants)

    def commit(self) -> None:
        if self.is_dirty:
            self.is_dirty = False
            self.image = session_image(self.session, NAMES, {0: self.position})
            unsaved, self.unsaved = self.unsaved, []
            for then in unsaved:
                then()

    def connect(self) -> None:
        if self.wire is None:
            while not self.session.recall():
                pass
            self.wire = Wire(self.receiver)
            self.session.joined(self.wire)

    def disconnect(self) -> None:
        if self.wire is not None:
            self.wire = None
            self.session.left(0)

    def kill(self) -> None:
        self.disconnect()
        self.unsaved.clear()
        self.asking.clear()
        self.is_dirty = False
        image = image_of(self.image)
        assert isinstance(image, SessionImage)
        self.session = ClientSession("c", self, waiting_max=self.waiting_max)
        restore_session(self.session, image, {"stream": 0})
        self.position = min(self.session.backlog.floors.get(0, 0), len(self.log))
        self.tail()

    def look(self) -> bool:
        """The receiver looks at one packet; whether there was one."""
        wire, session, receiver = self.wire, self.session, self.receiver
        if wire is None or not wire.coming:
            return False
        kind, number, sending = wire.coming.pop(0)
        assert len(session.in_flight) <= wire.window
        if kind == "release":
            receiver.numbers.discard(number)
            session.completed(number)
            return True
        assert sending is not None
        payload = sending.incoming.payload
        if sending.qos == 0:
            return True
        if sending.qos == 1:
            receiver.arrived.append((1, payload))
            session.acknowledged(number)
            return True
        if number not in receiver.numbers:
            receiver.numbers.add(number)
            receiver.arrived.append((2, payload))
        session.received_by_peer(number)
        return True


STEPS = ("0", "1", "2", "1", "2", *("look",) * 4, "commit", "commit", "drop", "kill", "slow")
# Somebody who is gone comes back soon, or nothing much would happen.
steps = st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), max_size=60)


@settings(max_examples=500, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), steps)
def test_nothing_is_lost_and_qos_2_arrives_once(
    window: int, waiting_max: int, play: list[tuple[str, bool]]
) -> None:
    node = FakeNode(window, waiting_max)
    acts = {
        "look": node.look,
        "commit": node.commit,
        "drop": node.disconnect,
        "kill": node.kill,
        "slow": node.slow,
    }
    node.connect()
    for step, comes_back in play:
        if comes_back:
            node.connect()
        if step in acts:
            acts[step]()
        else:
            node.publish(int(step))
    node.connect()
    for _ in range(10_000):
        node.commit()
        node.ask()
        if not node.look() and not node.is_dirty and not node.asking:
            break

    assert not node.session.in_flight
    assert not node.session.backlog
    for qos in (1, 2):
        sent = [each.payload for each in node.log if each.qos == qos]
        arrived = [payload for at, payload in node.receiver.arrived if at == qos]
        first = list(dict.fromkeys(arrived))
        assert first == sent
        if qos == 2:
            assert len(arrived) == len(set(arrived))


def test_a_stored_message_of_another_protocol_has_qos_1() -> None:
    assert Incoming(Message(b"t", b"x", (("a", b"\xff"),)), "t").qos == 1
