"""The sessions and groups of a node: found, begun, taken over, ended, and kept over restarts.

Pure but for the log that it is handed. What is to be kept is written once per turn and session,
however often it changed in it.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from mainstem.broker.api.broker import Settled
from mainstem.model.errors import Corrupt, ErrorCode, MainstemError, Unavailable
from mainstem.model.message import Message
from mainstem.model.topic_name import MQTT_SESSIONS_TOPIC
from mainstem.protocols.mqtt.sessions.backlog import StreamPosition
from mainstem.protocols.mqtt.sessions.client_session import (
    ClientSession,
    SessionContext,
    SessionReader,
)
from mainstem.protocols.mqtt.sessions.image import (
    GroupImage,
    Image,
    SessionImage,
    floors,
    group_image,
    image_of,
    restore_session,
    session_image,
)
from mainstem.protocols.mqtt.sessions.shared_group import SharedGroup
from mainstem.protocols.mqtt.sessions.wills import Wills
from mainstem.protocols.mqtt.settings import NEVER_S, MqttSettings
from mainstem.protocols.mqtt.streams.log_writer import LogWriter
from mainstem.protocols.mqtt.streams.tail import Tail
from mainstem.protocols.mqtt.subscription_trie import SubscriptionTrie
from mainstem.wire.mqtt.packets import Will
from mainstem.wire.mqtt.topics import SHARE, SharedFilter, shared_filter

log = logging.getLogger(__name__)

_SESSION: Final = "s:"
_GROUP: Final = "g:"


class SessionRegistryContext(SessionContext, Protocol):
    """What the book asks of the hub."""

    settings: MqttSettings
    wills: Wills

    def publish(self, packet: Will, client_id: str, settled: None) -> None:
        """Publish a will."""
        ...


class SessionRegistry:
    """Finds, starts, takes over, ends and persists sessions."""

    def __init__(
        self,
        context: SessionRegistryContext,
        writer: LogWriter,
        tail: Tail,
        trie: SubscriptionTrie[SessionReader],
    ) -> None:
        self._context = context
        self._settings = context.settings
        self._writer = writer
        self._tail = tail
        self._trie = trie
        self.sessions: dict[str, ClientSession] = {}
        self.groups: dict[str, SharedGroup] = {}
        self._dirty: dict[ClientSession, list[Callable[[], None]]] = {}
        self._kept: set[str] = set()  # sessions and groups that stand in the log

    # Loading

    def load(self, kept: Mapping[str, bytes | None]) -> None:
        """Find what was kept, and read the log from where the first of them stopped."""
        images: dict[str, Image] = {}
        for name, data in kept.items():
            if data is not None:
                try:
                    images[name] = image_of(data)
                except Corrupt as damage:
                    log.warning("session %s is lost: %s", name, damage)
        numbers = self._tail.numbers
        for name, image in images.items():
            self._kept.add(name)
            if isinstance(image, SessionImage):
                self._restore(name.removeprefix(_SESSION), image, numbers)
        for name, image in images.items():
            if isinstance(image, GroupImage):
                self._restore_group(name.removeprefix(_GROUP), image, numbers)
        self._rewind()

    def _restore(self, client_id: str, image: SessionImage, numbers: dict[str, int]) -> None:
        session = self._new(client_id)
        restore_session(session, image, numbers)
        for text, granted in session.subscriptions.items():
            shared = shared_filter(text)
            if shared is None:
                self._trie.add(text, session, granted)
            else:
                self.group(shared).join(session, granted)
        for kept in image.flights:
            group = self.groups.get(kept.group)
            if group is not None and kept.packet_id in session.in_flight:
                session.in_flight[kept.packet_id].lender = group
        if session.left_ms is None:
            # Its connection ended with the node, without a word.
            session.left_ms = self._context.now_ms()
            if session.will is not None:
                delay_s = int(session.will.properties.get("will_delay_interval", 0))
                due_ms = session.left_ms + 1_000 * min(delay_s, session.expiry_s)
                self._context.wills.put(client_id, session.will, due_ms)

    def _restore_group(self, name: str, image: GroupImage, numbers: dict[str, int]) -> None:
        group = self.groups.get(name)
        if group is None:
            return  # no member is left
        group.backlog.floors = floors(image.positions, numbers)
        held = {
            flight.where
            for member in group.members
            for flight in member.in_flight.values()
            if flight.lender is group
        }
        for stream, offset in image.lent:
            if stream in numbers:
                place = StreamPosition(numbers[stream], offset)
                if place in held:
                    group.lent[place] = None
                else:
                    group.backlog.give_back(place)

    def _rewind(self) -> None:
        readers: list[SessionReader] = [*self.sessions.values(), *self.groups.values()]
        for number, end in self._tail.ends().items():
            starts = [reader.backlog.floors.get(number, end) for reader in readers]
            self._tail.start_from(number, min([end, *starts]))

    # Sessions

    def begin(self, client_id: str) -> ClientSession:
        """A new session.

        Raises:
            Unavailable: there are too many.
        """
        if len(self.sessions) >= self._settings.sessions_max:
            raise Unavailable(ErrorCode.LIMIT_REACHED, "no more MQTT sessions are kept here")
        return self._new(client_id)

    def _new(self, client_id: str) -> ClientSession:
        waiting_max = self._settings.waiting_max
        session = ClientSession(client_id, self._context, waiting_max=waiting_max)
        self.sessions[client_id] = session
        return session

    def left(self, session: ClientSession) -> None:
        """A session's connection is gone; the session may be over with it."""
        if session.is_durable:
            self.save(session)
            for group in self._groups_of(session):
                group.drain()
        else:
            self.end(session)

    def end(self, session: ClientSession) -> None:
        """Forget a session and all that belongs to it."""
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
        will = self._context.wills.take(session.client_id)
        if will is not None:
            self._context.publish(will, session.client_id, None)
        session.expiry_s = 0
        session.left(self._context.now_ms())
        for text in list(session.subscriptions):
            shared = shared_filter(text)
            if shared is None:
                self._trie.discard(text, session)
            else:
                self.leave(session, shared)
        session.subscriptions.clear()
        self._dirty.pop(session, None)
        self._drop(_SESSION + session.client_id)

    def expire(self, now_ms: int) -> None:
        """End sessions whose time is over, and keep groups that have changed."""
        for session in list(self.sessions.values()):
            left_ms = session.left_ms
            if left_ms is None or session.expiry_s == NEVER_S:
                continue
            if now_ms >= left_ms + session.expiry_s * 1_000:
                self.end(session)
        for group in self.groups.values():
            if group.has_changed:
                self._save_group(group)

    # Groups

    def group(self, shared: SharedFilter) -> SharedGroup:
        """The group of a shared filter, made where there is none."""
        name = f"{SHARE}{shared.group}/{shared.filter}"
        found = self.groups.get(name)
        if found is None:
            found = SharedGroup(shared, self._context, waiting_max=self._settings.waiting_max)
            self.groups[name] = found
            self._trie.add(shared.filter, found, found.standing)
        return found

    def leave(self, session: ClientSession, shared: SharedFilter) -> None:
        """Take a session out of a group; one without members is no more."""
        name = f"{SHARE}{shared.group}/{shared.filter}"
        group = self.groups.get(name)
        if group is None:
            return
        group.leave(session)
        if group.members:
            group.drain()
        else:
            del self.groups[name]
            self._trie.discard(shared.filter, group)
            self._drop(_GROUP + name)

    def _groups_of(self, session: ClientSession) -> list[SharedGroup]:
        return [lender for lender in session.lenders if isinstance(lender, SharedGroup)]

    def forget_stream(self, number: int) -> None:
        """A stream is gone, and what waited in it."""
        readers: list[SessionReader] = [*self.sessions.values(), *self.groups.values()]
        for reader in readers:
            reader.backlog.forget(number)

    def new_stream(self, number: int) -> None:
        """A stream can be read from now on: from where those stopped who know it.

        Others have it from its present end on.
        """
        end = self._tail.ends()[number]
        readers: list[SessionReader] = [*self.sessions.values(), *self.groups.values()]
        starts = [reader.backlog.floors.setdefault(number, end) for reader in readers]
        self._tail.start_from(number, min([end, *starts]))

    # Keeping

    def save(self, session: ClientSession, then: Callable[[], None] | None = None) -> None:
        """Keep a session's state at the end of this turn; ``then`` once that is committed."""
        waiting = self._dirty.get(session)
        if waiting is None:
            if not self._dirty:
                self._writer.before_flush(self.save_now)
            waiting = self._dirty[session] = []
        if then is not None:
            waiting.append(then)

    def save_now(self) -> None:
        """Write what is to be kept."""
        dirty, self._dirty = self._dirty, {}
        ends = self._tail.ends()
        for session, waiting in dirty.items():
            if session.is_durable:
                data = session_image(session, self._tail.names, ends)
                self._put(_SESSION + session.client_id, data, _Kept(session, waiting))
            else:
                _call(waiting)
            for group in self._groups_of(session):
                self._save_group(group)

    def _save_group(self, group: SharedGroup) -> None:
        group.has_changed = False
        name = _GROUP + group.name
        if group.is_durable:
            self._put(name, group_image(group, self._tail.names, self._tail.ends()), None)
        elif name in self._kept:
            self._drop(name)

    def _put(self, name: str, data: bytes, settled: Settled | None) -> None:
        self._kept.add(name)
        message = Message(name.encode(), data, (), self._context.now_ms())
        self._writer.add(MQTT_SESSIONS_TOPIC, message, settled)

    def _drop(self, name: str) -> None:
        if name in self._kept:
            self._kept.discard(name)
            message = Message(name.encode(), None, (), self._context.now_ms())
            self._writer.add(MQTT_SESSIONS_TOPIC, message)


class _Kept:
    """What is to happen once a session's state is committed."""

    __slots__ = ("_session", "_waiting")

    def __init__(self, session: ClientSession, waiting: list[Callable[[], None]]) -> None:
        self._session = session
        self._waiting = waiting

    def __call__(self, error: MainstemError | None) -> None:
        if error is None:
            _call(self._waiting)
            return
        log.warning("the session of %s cannot be kept: %s", self._session.client_id, error)
        if self._waiting and self._session.link is not None:
            # What was to be answered cannot be: the client comes again and asks anew.
            self._session.link.give_up()


def _call(waiting: list[Callable[[], None]]) -> None:
    for then in waiting:
        then()
