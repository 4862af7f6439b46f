"""The session of one client: the state that is independent of its connections.

    tail ──offer──▶ ClientSession ──▶ link (the connection, while there is one)
                       │   ▲
                  backlog  in flight: PUBLISH ─▶ PUBACK            QoS 1
                                      PUBLISH ─▶ PUBREC ─▶ PUBREL ─▶ PUBCOMP   QoS 2

Pure: it handles events, and calls its link and its context. Guarantees: a message of QoS 1 or 2 is
in flight or waits until its receiver has acknowledged it; those of one stream are sent in order;
no more are in flight than the receiver allows.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from mainstem.broker.api.broker import Settled
from mainstem.protocols.mqtt.convert import Incoming
from mainstem.protocols.mqtt.sessions.backlog import Backlog, ReadPending, StreamPosition
from mainstem.protocols.mqtt.settings import WINDOW_MAX
from mainstem.protocols.mqtt.subscription_trie import Granted
from mainstem.wire.mqtt.topics import SHARE, fits

if TYPE_CHECKING:
    from mainstem.wire.mqtt.packets import Will

Where = StreamPosition | str  # a position in the log, or the topic of a retained message
RETAINED_WAITING_MAX = 100_000


class SessionLink(Protocol):
    """A connection as its session sees it."""

    window: int  # maximum number of messages in flight

    @property
    def has_space(self) -> bool:
        """Whether more may be sent now."""
        ...

    def may_read(self, topic: str) -> bool:
        """Whether the client may read that topic."""
        ...

    def send_message(self, sending: "OutgoingMessage") -> bool:
        """Send a PUBLISH; False if it is larger than the client accepts."""
        ...

    def send_release(self, packet_id: int) -> None:
        """Send a PUBREL."""
        ...

    def give_up(self) -> None:
        """Close the connection, because a state that the client relies on could not be stored."""
        ...

    def taken_over(self) -> None:
        """Close the connection, because another one took over the session."""
        ...


class SessionContext(Protocol):
    """The operations of the node that a session uses."""

    def fetch(self, where: Where) -> Incoming | ReadPending | None:
        """The message at a position; None if it no longer exists."""
        ...

    def ask_again(self, reader: "SessionReader") -> None:
        """Drain a reader again a little later: a waiting message cannot be read now."""
        ...

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        ...

    def save(self, session: "ClientSession", then: Callable[[], None] | None = None) -> None:
        """Store the session's state; call ``then`` once that is committed."""
        ...

    def catch_up(self, reader: "SessionReader") -> None:
        """Read the log again for a reader that is behind."""
        ...


class SessionReader(Protocol):
    """A reader to which messages of the log are offered."""

    backlog: Backlog

    def offer(self, place: StreamPosition, incoming: Incoming, grants: Sequence[Granted]) -> None:
        """Offer a message that matches."""
        ...

    def grants_for(self, topic: str) -> Sequence[Granted]:
        """The subscriptions that match a topic."""
        ...

    def drain(self) -> None:
        """Send waiting messages, as far as there is space."""
        ...


class SharedMessageLender(Protocol):
    """A group that lent a message to one of its members."""

    def settled(self, place: StreamPosition) -> None:
        """Note that the member has finished with the message."""
        ...

    def returned(self, place: StreamPosition) -> None:
        """Take the message back unacknowledged."""
        ...

    def drain(self) -> None:
        """Send waiting messages: a member has space."""
        ...


class OutgoingMessage:
    """A message that is being sent to one receiver."""

    __slots__ = ("dup", "identifiers", "incoming", "packet_id", "qos", "retain")

    def __init__(self, incoming: Incoming, qos: int, identifiers: tuple[int, ...]) -> None:
        self.incoming = incoming
        self.qos = qos
        self.identifiers = identifiers
        self.retain = False
        self.dup = False
        self.packet_id = 0


class InFlightMessage:
    """A message that its receiver has not acknowledged."""

    __slots__ = ("lender", "qos", "released", "sending", "where")

    def __init__(self, where: Where, qos: int, *, released: bool = False) -> None:
        self.where = where
        self.qos = qos
        self.released = released  # the receiver has it; only the end of the exchange is missing
        self.sending: OutgoingMessage | None = None
        self.lender: SharedMessageLender | None = None


class InFlight(dict[int, InFlightMessage]):
    """Messages without an acknowledgement, by packet id."""

    def __init__(self) -> None:
        super().__init__()
        self._last = 0

    def add(self, flight: InFlightMessage) -> int:
        """Add a message under the next free packet id."""
        number = self._last % WINDOW_MAX + 1
        while number in self:
            number = number % WINDOW_MAX + 1
        self._last = number
        self[number] = flight
        return number

    def may_send(self, link: SessionLink, qos: int) -> bool:
        """Whether a message of that QoS may be sent now."""
        return link.has_space and (not qos or len(self) < link.window)


@dataclass(slots=True)
class PendingPublish:
    """A message of QoS 2 that is being stored, and the callbacks that wait for it.

    It is stored when both the message and the session with its packet id are committed.
    """

    waiting: list[Settled]
    is_stored: bool = False
    is_remembered: bool = False


class ClientSession:
    """Holds the session of one client across its connections."""

    def __init__(self, client_id: str, context: SessionContext, *, waiting_max: int) -> None:
        self.client_id = client_id
        self._name = client_id.encode()  # as in the publisher header of its own messages
        self.owner = ""
        self.expiry_s = 0
        self.left_ms: int | None = None
        self.will: Will | None = None
        self.link: SessionLink | None = None
        self.subscriptions: dict[str, Granted] = {}
        self.backlog = Backlog(waiting_max)
        self.in_flight = InFlight()
        self.received: set[int] = set()  # packet ids of QoS 2 that wait for PUBREL
        self.pending_publishes: dict[int, PendingPublish] = {}  # of QoS 2, not stored yet
        self.unstored: set[int] = set()  # those of them that are not in ``received`` yet
        self.lenders: dict[SharedMessageLender, None] = {}
        self._retained: deque[str] = deque()
        self._context = context

    @property
    def is_durable(self) -> bool:
        """Whether the session outlives its connection."""
        return self.expiry_s > 0

    @property
    def has_space(self) -> bool:
        """Whether one more message of QoS 1 or 2 may be sent now."""
        link = self.link
        return link is not None and link.has_space and len(self.in_flight) < link.window

    def grants_for(self, topic: str) -> Sequence[Granted]:
        """The session's own subscriptions that match a topic."""
        return [
            granted
            for text, granted in self.subscriptions.items()
            if not text.startswith(SHARE) and fits(text, topic)
        ]

    def offer(self, place: StreamPosition, incoming: Incoming, grants: Sequence[Granted]) -> None:
        """Send or queue a message of the log that matches subscriptions of this session."""
        if self.backlog.knows(place):
            return
        grants = _matching(self._name, incoming, grants)
        if not grants:
            return
        qos = min(incoming.qos, max(granted.subscription.qos for granted in grants))
        link = self.link
        if link is None:
            if qos:
                self.backlog.put(place)
            return
        if (
            self.backlog
            or self._retained
            or self.backlog.behind
            or not self.in_flight.may_send(link, qos)
        ):
            self.backlog.put(place)
        elif link.may_read(incoming.topic):
            self._send(place, incoming, qos, grants)

    def retained(self, found: Iterable[Incoming], granted: Granted) -> None:
        """Send or queue the retained messages of a new subscription."""
        for incoming in found:
            own = incoming.publisher == self._name
            if own and granted.subscription.no_local:
                continue
            qos = min(incoming.qos, granted.subscription.qos)
            link = self.link
            if link is not None and not self._retained and self.in_flight.may_send(link, qos):
                if link.may_read(incoming.topic):
                    self._send(incoming.topic, incoming, qos, (granted,))
            elif len(self._retained) < RETAINED_WAITING_MAX:
                self._retained.append(incoming.topic)

    def lend(
        self,
        place: StreamPosition,
        incoming: Incoming,
        granted: Granted,
        lender: SharedMessageLender,
    ) -> bool:
        """Send a message of a shared subscription; False if this member cannot accept it."""
        link = self.link
        qos = min(incoming.qos, granted.subscription.qos)
        if (
            link is None
            or not self.in_flight.may_send(link, qos)
            or not link.may_read(incoming.topic)
        ):
            return False
        self._send(place, incoming, qos, (granted,), lender)
        if not qos:
            lender.settled(place)
        return True

    def recall(self) -> bool:
        """Read messages in flight before a restart again; False if they cannot be read now."""
        for flight in self.in_flight.values():
            if flight.sending is not None or flight.released:
                continue
            incoming = self._context.fetch(flight.where)
            if isinstance(incoming, ReadPending):
                return False
            if incoming is not None:
                numbers = _numbers(self.grants_for(incoming.topic))
                flight.sending = OutgoingMessage(incoming, flight.qos, numbers)
                flight.sending.retain = isinstance(flight.where, str)
        return True

    def joined(self, link: SessionLink) -> None:
        """Attach a connection: send messages in flight again, then waiting ones."""
        self.link = link
        self.left_ms = None
        for packet_id, flight in list(self.in_flight.items()):
            if flight.qos == 2 and self.is_durable:
                # The state that the release depends on may not be committed yet.
                self._context.save(self, partial(self._send_again, link, packet_id, flight))
            else:
                self._send_again(link, packet_id, flight)
        self.drain()

    def left(self, now_ms: int) -> None:
        """Detach the closed connection."""
        self.link = None
        self.left_ms = now_ms
        for packet_id, flight in list(self.in_flight.items()):
            # Other members may get it, except at QoS 2, where the receiver may have it already.
            if flight.lender is not None and (flight.qos == 1 or not self.is_durable):
                del self.in_flight[packet_id]
                assert isinstance(flight.where, StreamPosition)
                flight.lender.returned(flight.where)
        if not self.is_durable:
            self.in_flight.clear()

    def acknowledged(self, packet_id: int) -> bool:
        """Handle PUBACK, or a PUBREC with an error; returns whether it was expected."""
        flight = self.in_flight.get(packet_id)
        if flight is None or flight.released:
            return False
        self._settle(packet_id, flight)
        return True

    def received_by_peer(self, packet_id: int) -> bool:
        """Handle PUBREC: the receiver has a QoS 2 message; returns whether it was expected."""
        flight = self.in_flight.get(packet_id)
        if flight is None or flight.qos != 2:
            return False
        flight.released = True
        flight.sending = None
        if self.is_durable:
            self._context.save(self, lambda: self._release(packet_id))
        else:
            self._release(packet_id)
        return True

    def completed(self, packet_id: int) -> bool:
        """Handle PUBCOMP, the end of the exchange; returns whether it was expected."""
        flight = self.in_flight.get(packet_id)
        if flight is None or not flight.released:
            return False
        self._settle(packet_id, flight)
        return True

    def drain(self) -> None:
        """Send waiting messages, as far as there is space."""
        while self.has_space:
            where = self._retained.popleft() if self._retained else self.backlog.take()
            if where is None:
                break
            incoming = self._context.fetch(where)
            if isinstance(incoming, ReadPending):
                assert isinstance(where, StreamPosition), "retained messages are in memory"
                self.backlog.give_back(where)
                self._context.ask_again(self)
                return
            if incoming is not None:
                self._send_waiting(where, incoming)
        if self.link is not None and not self.backlog and self.backlog.behind:
            self._context.catch_up(self)

    def _send_waiting(self, where: Where, incoming: Incoming) -> None:
        link = self.link
        grants = _matching(self._name, incoming, self.grants_for(incoming.topic))
        if link is None or not grants or not link.may_read(incoming.topic):
            return
        qos = min(incoming.qos, max(granted.subscription.qos for granted in grants))
        self._send(where, incoming, qos, grants)

    def _send(
        self,
        where: Where,
        incoming: Incoming,
        qos: int,
        grants: Sequence[Granted],
        lender: SharedMessageLender | None = None,
    ) -> None:
        if incoming.expires_ms is not None and incoming.is_expired(self._context.now_ms()):
            if lender is not None and qos and isinstance(where, StreamPosition):
                lender.settled(where)
            return
        sending = OutgoingMessage(incoming, qos, _numbers(grants))
        kept = incoming.retain and any(
            granted.subscription.retain_as_published for granted in grants
        )
        sending.retain = kept or isinstance(where, str)
        assert self.link is not None, "checked before"
        if not qos:
            self.link.send_message(sending)
            return
        flight = InFlightMessage(where, qos)
        sending.packet_id = packet_id = self.in_flight.add(flight)
        flight.sending = sending
        flight.lender = lender
        if qos == 2 and self.is_durable:
            # The receiver identifies it by packet id, which has to be the same after a crash.
            self._context.save(self, partial(self._send_out, self.link, packet_id, flight))
        else:
            self._send_out(self.link, packet_id, flight)

    def _send_out(self, link: SessionLink, packet_id: int, flight: InFlightMessage) -> None:
        sending = flight.sending
        if self.link is not link or sending is None or self.in_flight.get(packet_id) is not flight:
            return  # another connection sends it again
        if not link.send_message(sending):
            self._settle(packet_id, flight)

    def _send_again(self, link: SessionLink, packet_id: int, flight: InFlightMessage) -> None:
        if self.link is not link or self.in_flight.get(packet_id) is not flight:
            return
        if flight.released:
            link.send_release(packet_id)
            return
        sending = flight.sending
        if sending is None:
            self._settle(packet_id, flight)
            return
        sending.packet_id = packet_id
        sending.dup = True
        if not link.send_message(sending):
            self._settle(packet_id, flight)

    def _release(self, packet_id: int) -> None:
        if self.link is not None and packet_id in self.in_flight:
            self.link.send_release(packet_id)

    def _settle(self, packet_id: int, flight: InFlightMessage) -> None:
        del self.in_flight[packet_id]
        if flight.lender is not None and isinstance(flight.where, StreamPosition):
            flight.lender.settled(flight.where)
        if self.is_durable:
            self._context.save(self)
        self.drain()
        for lender in list(self.lenders):
            lender.drain()


def _matching(name: bytes, incoming: Incoming, grants: Sequence[Granted]) -> Sequence[Granted]:
    """The subscriptions without those with no-local, for the client's own messages."""
    if incoming.publisher == name:
        return [granted for granted in grants if not granted.subscription.no_local]
    return grants


def _numbers(grants: Sequence[Granted]) -> tuple[int, ...]:
    return tuple(granted.identifier for granted in grants if granted.identifier)
