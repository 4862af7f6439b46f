"""The sessions and groups of a node: created, found, taken over, ended, and persisted.

Pure except for the log that is passed in. The state of a session is written once per turn,
however often it changed in that turn.
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
    """The operations of the hub that the registry uses."""

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
        self._kept: set[str] = set()  # names of sessions and groups that are stored

    # Loading

    def load(self, kept: Mapping[str, bytes | None]) -> None:
        """Restore the stored sessions, and read the log from the lowest of their offsets."""
        images: dict[str, Image] = {}
        for name, data in kept.items():
            if data is not None:
                try:
                    images[name] = image_of(data)
                except Corrupt as damage:
                    log.warning("session %s cannot be restored: %s", name, damage)
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
            # Its connection ended with the node, without DISCONNECT.
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
        """Start a new session.

        Raises:
            Unavailable: there are too many sessions.
        """
        if len(self.sessions) >= self._settings.sessions_max:
            raise Unavailable(ErrorCode.LIMIT_REACHED, "limit of MQTT sessions reached")
        return self._new(client_id)

    def _new(self, client_id: str) -> ClientSession:
        waiting_max = self._settings.waiting_max
        session = ClientSession(client_id, self._context, waiting_max=waiting_max)
        self.sessions[client_id] = session
        return session

    def left(self, session: ClientSession) -> None:
        """Store a session whose connection is closed, or end it if it is not persistent."""
        if session.is_durable:
            self.save(session)
            for group in self._groups_of(session):
                group.drain()
        else:
            self.end(session)

    def end(self, session: ClientSession) -> None:
        """Delete a session with its subscriptions; its will is published."""
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
        """End expired sessions, and store groups that have changed."""
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
        """The group of a shared filter, created if missing."""
        name = f"{SHARE}{shared.group}/{shared.filter}"
        found = self.groups.get(name)
        if found is None:
            found = SharedGroup(shared, self._context, waiting_max=self._settings.waiting_max)
            self.groups[name] = found
            self._trie.add(shared.filter, found, found.standing)
        return found

    def leave(self, session: ClientSession, shared: SharedFilter) -> None:
        """Remove a session from a group; a group without members is deleted."""
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
        """Remove a deleted stream, and the positions that wait in it."""
        readers: list[SessionReader] = [*self.sessions.values(), *self.groups.values()]
        for reader in readers:
            reader.backlog.forget(number)

    def new_stream(self, number: int) -> None:
        """Start to read a stream: from the lowest offset of the readers that know it.

        Other readers start at its current end.
        """
        end = self._tail.ends()[number]
        readers: list[SessionReader] = [*self.sessions.values(), *self.groups.values()]
        starts = [reader.backlog.floors.setdefault(number, end) for reader in readers]
        self._tail.start_from(number, min([end, *starts]))

    # Persistence

    def save(self, session: ClientSession, then: Callable[[], None] | None = None) -> None:
        """Store a session's state at the end of this turn; call ``then`` once that is committed."""
        waiting = self._dirty.get(session)
        if waiting is None:
            if not self._dirty:
                self._writer.before_flush(self.save_now)
            waiting = self._dirty[session] = []
        if then is not None:
            waiting.append(then)

    def save_now(self) -> None:
        """Write all changed sessions."""
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
    """Runs the callbacks that wait until a session's state is committed."""

    __slots__ = ("_session", "_waiting")

    def __init__(self, session: ClientSession, waiting: list[Callable[[], None]]) -> None:
        self._session = session
        self._waiting = waiting

    def __call__(self, error: MainstemError | None) -> None:
        if error is None:
            _call(self._waiting)
            return
        log.warning("the session of %s cannot be stored: %s", self._session.client_id, error)
        if self._waiting and self._session.link is not None:
            # The pending answer cannot be given: the client reconnects and repeats its request.
            self._session.link.give_up()


def _call(waiting: list[Callable[[], None]]) -> None:
    for then in waiting:
        then()
