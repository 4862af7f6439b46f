"""The streams that MQTT reads, each once, whatever the number of sessions.

    stream ──(committed)──▶ Tail ──▶ dispatch(place, topic, message)

Pure but for what it is handed: ``soon`` gives others their turn between pieces. What this node has
just written is dispatched from memory; everything else is read from the log. A damaged batch is
passed over, counted and logged: MQTT has no way to tell a subscriber about it.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final

from mainstem.broker.api import Broker, StreamDoor
from mainstem.model.errors import Corrupt, MainstemError
from mainstem.model.limits import KIB
from mainstem.model.message import Message
from mainstem.protocols.mqtt.backlog import Place
from mainstem.protocols.mqtt.convert import Incoming, topic_of
from mainstem.protocols.mqtt.visibility import visible_batches

log = logging.getLogger(__name__)

READ_BYTES: Final = 256 * KIB
BATCHES_PER_TURN: Final = 16
FRESH_MAX: Final = 64  # batches in memory between their writing and their dispatch
CACHED_MAX: Final = 64  # batches read for those who lag

Dispatch = Callable[[Place, str, Message], None]
Soon = Callable[[Callable[[], None]], object]


class TailedStream:
    """One stream and how far it was read."""

    def __init__(self, number: int, name: str, door: StreamDoor) -> None:
        self.number = number
        self.name = name
        self.door = door
        self.position = door.last_stable
        self.fresh: dict[int, list[Message]] = {}


class Tail:
    """See the module's text. ``is_idle``: nobody listens, so nothing need be read."""

    def __init__(self, broker: Broker, soon: Soon, dispatch: Dispatch) -> None:
        self._broker = broker
        self._soon = soon
        self._dispatch = dispatch
        self._due: dict[TailedStream, None] = {}
        self._wakers: dict[int, Callable[[], None]] = {}
        self._cache: dict[Place, Message] = {}
        self.streams: dict[int, TailedStream] = {}
        self.names: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._by_partition: dict[tuple[str, int], TailedStream] = {}
        self.is_idle = True

    @property
    def numbers(self) -> dict[str, int]:
        """The streams that are read, by name."""
        return {stream.name: stream.number for stream in self.streams.values()}

    def ends(self) -> dict[int, int]:
        """How far each stream was read."""
        return {number: stream.position for number, stream in self.streams.items()}

    def refresh(self, topics: Iterable[str]) -> list[int]:
        """Read partitions that are new, and those gone no more; the numbers of the latter."""
        gone = [n for n, stream in self.streams.items() if stream.door.closed is not None]
        for number in gone:
            self._drop(number)
        for topic in topics:
            known = self._broker.topics.by_name(topic)
            for partition in range(0 if known is None else len(known.streams)):
                if (topic, partition) not in self._by_partition:
                    self._add(topic, partition)
        return gone

    def _add(self, topic: str, partition: int) -> None:
        door = self._broker.streams.door(topic, partition)
        if door.closed is not None:
            return  # another node writes it
        name = f"{door.id.topic.hex()}-{partition}"
        number = self._numbers.setdefault(name, len(self._numbers))
        stream = TailedStream(number, name, door)
        self.streams[number] = stream
        self.names[number] = name
        self._by_partition[topic, partition] = stream

        def wake() -> None:
            self._wake(stream)

        self._wakers[number] = wake
        door.add_waiter(wake)

    def _drop(self, number: int) -> None:
        stream = self.streams.pop(number)
        stream.door.remove_waiter(self._wakers.pop(number))
        self._by_partition = {k: v for k, v in self._by_partition.items() if v is not stream}

    def close(self) -> None:
        """Read no more."""
        for number in list(self.streams):
            self._drop(number)

    def written(self, topic: str, partition: int, base: int, messages: list[Message]) -> None:
        """This node has written these; they need not be read."""
        stream = self._by_partition.get((topic, partition))
        if stream is not None and not self.is_idle and len(stream.fresh) < FRESH_MAX:
            stream.fresh[base] = messages

    def start_from(self, number: int, offset: int) -> None:
        """Read a stream from there on, or from its start if that is later."""
        stream = self.streams[number]
        stream.position = max(offset, stream.door.start_offset)
        self._wake(stream)

    def catch_up(self) -> None:
        """Read what is committed now, unless it is so much that others would have to wait."""
        for stream in list(self.streams.values()):
            for _ in range(BATCHES_PER_TURN):
                if not self._read_on(stream):
                    break

    def committed(self) -> dict[int, int]:
        """Where each stream ends for readers."""
        return {number: stream.door.last_stable for number, stream in self.streams.items()}

    def fetch(self, place: Place) -> Incoming | None:
        """One message; None where it is gone."""
        stream = self.streams.get(place.stream)
        if stream is None:
            return None
        message = self._cache.pop(place, None)
        if message is None and self._fill(stream, place.offset):
            message = self._cache.pop(place, None)
        return None if message is None else Incoming(message, topic_of(message, stream.door.topic))

    def scan(self, number: int, offset: int, found: Dispatch) -> int:
        """Show one piece of the log to somebody who is behind; how far it went."""
        stream = self.streams[number]
        offset = max(offset, stream.door.start_offset)
        return self._read(stream, min(offset, stream.position), stream.position, found)

    def _wake(self, stream: TailedStream) -> None:
        if not self._due:
            self._soon(self._pump)
        self._due[stream] = None

    def _pump(self) -> None:
        due, self._due = self._due, {}
        for stream in due:
            for _ in range(BATCHES_PER_TURN):
                if not self._read_on(stream):
                    break
            else:
                self._wake(stream)

    def _read_on(self, stream: TailedStream) -> bool:
        """Dispatch one piece; whether there may be more."""
        end = stream.door.last_stable
        start = stream.position
        if start >= end or stream.door.closed is not None:
            return False
        if self.is_idle:
            stream.position = end
            stream.fresh.clear()
            return False
        messages = stream.fresh.pop(start, None)
        if messages is not None and start + len(messages) <= end:
            topic, number = stream.door.topic, stream.number
            stream.position = start + len(messages)
            for offset, message in enumerate(messages, start):
                self._dispatch(Place(number, offset), topic_of(message, topic), message)
            return True
        stream.position = self._read(stream, start, end, self._dispatch)
        if stream.fresh:
            stream.fresh = {k: v for k, v in stream.fresh.items() if k >= stream.position}
        return stream.position > start

    def _read(self, stream: TailedStream, start: int, end: int, found: Dispatch) -> int:
        """Read one piece from the log; the offset after it."""
        door, number = stream.door, stream.number
        start = max(start, door.start_offset)
        reached = beyond = start
        try:
            piece = door.read(start, max_bytes=READ_BYTES, committed_only=True, min_one=True)
            if piece is None:
                return reached
            for until, records in visible_batches(door, piece, start):
                beyond = until
                for record in records:
                    if record.offset < end:
                        message = Message.of_record(record)
                        found(Place(number, record.offset), topic_of(message, door.topic), message)
                reached = min(until, end)
        except Corrupt as damage:
            log.warning("%s: a batch at offset %d is passed over: %s", door.topic, reached, damage)
            return max(beyond, reached + 1)
        except MainstemError as error:
            log.warning("%s cannot be read: %s", door.topic, error)
        return reached

    def _fill(self, stream: TailedStream, offset: int) -> bool:
        """Read what lies around an offset: whoever wants one wants those after it."""
        if offset < stream.door.start_offset:
            return False
        found: list[tuple[Place, Message]] = []

        def keep(place: Place, _topic: str, message: Message) -> None:
            if len(found) < CACHED_MAX:
                found.append((place, message))

        self._read(stream, offset, stream.position, keep)
        if len(self._cache) + len(found) > 4 * CACHED_MAX:
            self._cache.clear()
        self._cache.update(found)
        return bool(found)
