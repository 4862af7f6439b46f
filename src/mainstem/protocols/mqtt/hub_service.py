"""All MQTT sessions of a node, and their shared state: subscriptions, retained messages, the log.

    connection ── join, subscribe, publish ──▶ MqttHub ──▶ LogWriter ──▶ streams
         ▲                                        │
         └──────── ClientSession ◀── trie ◀── Tail┘

Nothing is created before the first client connects: a node without MQTT has no topics for it.
Persistent sessions are stored in ``__mqtt_sessions`` and retained messages in
``__mqtt_retained``, both compacted, so that a node that was killed loads them again.

In a cluster one node serves all sessions: the one that writes ``__mqtt_sessions``. It reads and
writes the other streams wherever they are. When another node takes over that stream, it takes over
the sessions, and clients connected here are redirected to it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from mainstem.broker.api.broker import Broker, Settled
from mainstem.broker.api.topics import Topics
from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.model.message import Message
from mainstem.model.topic_name import MQTT_RETAINED_TOPIC, MQTT_SESSIONS_TOPIC
from mainstem.protocols.mqtt.convert import Incoming, message_of, topic_of
from mainstem.protocols.mqtt.retained_tree import RetainedTree
from mainstem.protocols.mqtt.sessions.backlog import ReadPending, StreamPosition
from mainstem.protocols.mqtt.sessions.catch_up import CatchUpReaders
from mainstem.protocols.mqtt.sessions.client_session import ClientSession, SessionReader, Where
from mainstem.protocols.mqtt.sessions.owner_service import (
    check_owned,
    until_owned,
    until_read,
)
from mainstem.protocols.mqtt.sessions.registry import SessionRegistry
from mainstem.protocols.mqtt.sessions.wills import Wills
from mainstem.protocols.mqtt.settings import NEVER_S, MqttSettings
from mainstem.protocols.mqtt.streams.compacted_topic_service import stored_messages
from mainstem.protocols.mqtt.streams.log_writer import LogWriter
from mainstem.protocols.mqtt.streams.remote_stream_driver import Follow, RemoteStream
from mainstem.protocols.mqtt.streams.tail import Tail
from mainstem.protocols.mqtt.subscription_trie import Granted, SubscriptionTrie
from mainstem.wire.mqtt.packets import Publish, Subscription, Will
from mainstem.wire.mqtt.topics import shared_filter

log = logging.getLogger(__name__)

TICK_S: Final = 1.0
AGAIN_S: Final = 0.02
OPENING_S: Final = 3.0  # for new streams to open, and other nodes to be reached
RETAIN_ALWAYS, RETAIN_IF_NEW = 0, 1


class KeepAliveConnection(Protocol):
    """A connection whose keep-alive time is checked."""

    def tick(self, now_s: float) -> None:
        """Check the keep-alive time."""
        ...

    def stopping(self) -> None:
        """Disconnect, because the node stops."""
        ...

    def moved(self) -> None:
        """Disconnect, because another node serves the sessions."""
        ...


class MqttHub:
    """Serves all MQTT sessions of a node and holds their shared state.

    Args:
        broker: the broker API.
        settings: limits and routes.
        clock: the clock.
        ensure: creates the topics of MQTT if they are missing.
        follow: reads streams that other nodes write; None on a single node.
    """

    def __init__(
        self,
        broker: Broker,
        settings: MqttSettings,
        clock: Clock,
        ensure: Callable[[], Awaitable[None]],
        follow: Follow | None = None,
    ) -> None:
        self.settings = settings
        self.now_ms = clock.wall_ms
        self.now_s = clock.monotonic
        self._broker = broker
        self._ensure = ensure
        self._follow = follow
        self.is_alone = follow is None  # a single node
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Task[None] | None = None
        self._ticking: asyncio.TimerHandle | None = None
        self.links: dict[KeepAliveConnection, None] = {}
        self._begin()

    def _begin(self) -> None:
        """Reset to the state without sessions and readers."""
        settings, loop = self.settings, self._loop
        self._trie: SubscriptionTrie[SessionReader] = SubscriptionTrie()
        self._retained = RetainedTree(
            messages_max=settings.retained_max, bytes_max=settings.retained_bytes_max
        )
        broker, follow = self._broker, self._follow
        far = None if follow is None else partial(RemoteStream, follow=follow)
        self.tail = Tail(broker, loop.call_soon, self._dispatch, far)
        partitions = partial(_partitions, broker.topics)
        self.writer = LogWriter(broker.streams, partitions, loop.call_soon, self.tail.written)
        self.wills = Wills()
        self.registry = SessionRegistry(self, self.writer, self.tail, self._trie)
        self._laggards = CatchUpReaders(
            self.tail, loop.call_soon, lambda call: loop.call_later(AGAIN_S, call)
        )
        # Operations of ``SessionContext``: store state, catch up with the log, drain again later.
        self.save = self.registry.save
        self.catch_up = self._laggards.add
        self.ask_again = self._laggards.ask_again

    # Opening and closing

    async def ready(self) -> None:
        """Create the topics and load the stored state, once; raises the error if that fails."""
        if self._opening is None:
            self._opening = self._loop.create_task(self._open())
        opening = self._opening
        await asyncio.wait([opening])
        if opening.cancelled():
            raise Unavailable(ErrorCode.NOT_WRITER, "another node serves the MQTT sessions now")
        if (failure := opening.exception()) is not None:
            if self._opening is opening:
                self._leave_off()
                self._begin()
            raise failure
        check_owned(self._broker)

    async def _open(self) -> None:
        await self._ensure()
        await until_owned(self._broker)
        with contextlib.suppress(TimeoutError):  # the other streams follow later
            async with asyncio.timeout(OPENING_S):
                await until_read(self.tail, self.settings.topics)
        async for message in stored_messages(self._broker, MQTT_RETAINED_TOPIC):
            topic = topic_of(message, "")
            if topic:
                self._retained.keep(Incoming(message, topic))
        images: dict[str, bytes | None] = {}
        async for message in stored_messages(self._broker, MQTT_SESSIONS_TOPIC):
            images[(message.key or b"").decode()] = message.value
        self.registry.load(images)
        self._wake_tail()
        self._tick()

    @property
    def is_open(self) -> bool:
        """Whether this node serves the sessions and has loaded them."""
        opening = self._opening
        return opening is not None and opening.done() and not opening.cancelled()

    def lost(self) -> None:
        """Drop all sessions, because another node serves them now."""
        links = list(self.links)
        self._leave_off()
        self._begin()
        for link in links:
            link.moved()

    def close(self) -> None:
        """Stop reading and writing."""
        self.registry.save_now()
        self._leave_off()

    def _leave_off(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None
        self.writer.close()
        self.tail.close()

    # Publishing

    def publish(self, packet: Publish | Will, client_id: str, settled: Settled | None) -> None:
        """Store a message; ``settled`` is called once it is committed or refused."""
        message = message_of(packet, client_id, self.now_ms())
        topic = self.settings.topic_for(packet.topic)
        if not packet.retain:
            self.writer.add(topic, message, settled)
            return
        size = len(packet.payload) + len(packet.topic)
        if packet.payload and not self._retained.has_space(packet.topic, size):
            if settled is not None:
                settled(Unavailable(ErrorCode.LIMIT_REACHED, "limit of retained messages reached"))
            return
        both = _Both(settled)
        self.writer.add(topic, message, both.one)

        def kept(error: MainstemError | None) -> None:
            if error is None:
                self._retained.keep(Incoming(message, packet.topic))
            both.one(error)

        stored = message if packet.payload else message._replace(value=None)
        self.writer.add(MQTT_RETAINED_TOPIC, stored, kept)

    # Subscribing

    def subscribe(
        self, session: ClientSession, subscription: Subscription, identifier: int
    ) -> bool:
        """Add a subscription to a session; returns whether the filter is new."""
        # Messages that are committed by now are older than the subscription.
        self.tail.catch_up()
        if not session.subscriptions and not session.backlog:
            session.backlog.floors = self.tail.committed()
        granted = Granted(subscription, identifier)
        is_new = subscription.filter not in session.subscriptions
        session.subscriptions[subscription.filter] = granted
        shared = shared_filter(subscription.filter)
        if shared is None:
            self._trie.add(subscription.filter, session, granted)
        else:
            self.registry.group(shared).join(session, granted)
        self._wake_tail()
        return is_new

    def send_retained(
        self, session: ClientSession, subscription: Subscription, *, is_new: bool
    ) -> None:
        """Send retained messages that match a subscription, as its retain handling specifies."""
        handling = subscription.retain_handling
        if handling == RETAIN_ALWAYS or (handling == RETAIN_IF_NEW and is_new):
            granted = session.subscriptions.get(subscription.filter)
            if granted is not None and shared_filter(subscription.filter) is None:
                session.retained(self._retained.match(subscription.filter, self.now_ms()), granted)

    def unsubscribe(self, session: ClientSession, text: str) -> bool:
        """Remove a subscription; returns whether it existed."""
        if session.subscriptions.pop(text, None) is None:
            return False
        shared = shared_filter(text)
        if shared is None:
            self._trie.discard(text, session)
        else:
            self.registry.leave(session, shared)
        return True

    # Requests of sessions

    def fetch(self, where: Where) -> Incoming | ReadPending | None:
        """The message at a position; None if it no longer exists."""
        return self._retained.get(where) if isinstance(where, str) else self.tail.fetch(where)

    def _dispatch(self, place: StreamPosition, topic: str, message: Message) -> None:
        found = self._trie.match(topic)
        if found:
            incoming = Incoming(message, topic)
            for reader, grants in found:
                reader.offer(place, incoming, grants)

    def _wake_tail(self) -> None:
        self.tail.is_idle = not len(self._trie)

    # Time

    def _tick(self) -> None:
        """Publish wills that are due, expire sessions, follow new and deleted topics."""
        now_ms = self.now_ms()
        for client_id, will in self.wills.due(now_ms):
            self.publish(will, client_id, None)
        self.registry.expire(now_ms)
        self._follow_topics()
        now_s = self.now_s()
        for link in list(self.links):
            link.tick(now_s)
        self._ticking = self._loop.call_later(TICK_S, self._tick)

    def _follow_topics(self) -> None:
        try:
            new, gone = self.tail.refresh(self.settings.topics)
        except MainstemError as error:
            log.warning("MQTT topics cannot be read now: %s", error)
            return
        for number in gone:
            self.registry.forget_stream(number)
        for number in new:
            self.registry.new_stream(number)

    # Connections

    def join(self, client_id: str, owner: str, *, is_clean: bool) -> tuple[ClientSession, bool]:
        """Open the session of a client; returns it, and whether it existed before.

        Raises:
            InvalidRequest: it belongs to another user.
            Unavailable: there are too many sessions.
        """
        registry = self.registry
        known = registry.sessions.get(client_id)
        if known is not None and known.owner != owner:
            raise InvalidRequest(ErrorCode.NOT_AUTHORIZED, "this client id is used by another user")
        if known is not None and known.link is not None:
            known.link.taken_over()
            known = registry.sessions.get(client_id)
        if known is not None and is_clean:
            registry.end(known)
            known = None
        self.wills.cancel(client_id)
        session = known or registry.begin(client_id)
        session.owner = owner
        return session, known is not None

    def disconnect_all(self) -> None:
        """Disconnect every client, because the node stops."""
        for link in list(self.links):
            link.stopping()

    def leave(self, session: ClientSession, will: Will | None, *, graceful: bool) -> None:
        """Detach a session from its closed connection; publish or schedule its will."""
        now_ms = self.now_ms()
        session.left(now_ms)
        if self.registry.sessions.get(session.client_id) is not session:
            return  # another node serves it
        if will is not None and not graceful:
            delay_s = int(will.properties.get("will_delay_interval", 0))
            if session.expiry_s != NEVER_S:
                delay_s = min(delay_s, session.expiry_s)
            if delay_s:
                self.wills.put(session.client_id, will, now_ms + delay_s * 1_000)
            else:
                self.publish(will, session.client_id, None)
        self.registry.left(session)
        self._wake_tail()


class _Both:
    """Calls ``settled`` once after two results, or immediately after a failure.

    A failure is reported immediately: messages that the client sends meanwhile would otherwise be
    stored before the one that it repeats.
    """

    def __init__(self, settled: Settled | None) -> None:
        self._settled = settled
        self._missing = 2

    def one(self, error: MainstemError | None) -> None:
        self._missing -= 1
        if self._settled is not None and (error is not None or not self._missing):
            settled, self._settled = self._settled, None
            settled(error)


def _partitions(topics: Topics, topic: str) -> int:
    """The number of partitions of a topic; 0 if it does not exist."""
    known = topics.by_name(topic)
    return 0 if known is None else len(known.streams)
