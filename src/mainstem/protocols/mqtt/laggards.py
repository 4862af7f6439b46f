"""Readers that are behind: the log is read again for each, a piece at a time."""

from collections.abc import Callable

from mainstem.model.message import Message
from mainstem.protocols.mqtt.backlog import Place
from mainstem.protocols.mqtt.client_session import Reader
from mainstem.protocols.mqtt.tail import Tail


class Laggards:
    """Lets each read on once it has caught up with what it had noted."""

    def __init__(self, tail: Tail, soon: Callable[[Callable[[], None]], object]) -> None:
        self._tail = tail
        self._soon = soon
        self._waiting: dict[Reader, None] = {}

    def add(self, reader: Reader) -> None:
        """Somebody has room again."""
        if not self._waiting:
            self._soon(self._read_on)
        self._waiting[reader] = None

    def _read_on(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            for number, offset in list(reader.backlog.behind.items()):
                self._read_for(reader, number, offset)
            reader.drain()

    def _read_for(self, reader: Reader, number: int, offset: int) -> None:
        stream = self._tail.streams.get(number)
        if stream is None:
            reader.backlog.forget(number)
            return
        del reader.backlog.behind[number]

        def found(place: Place, topic: str, _message: Message) -> None:
            if reader.grants_for(topic):
                reader.backlog.put(place)

        reached = self._tail.scan(number, offset, found)
        if reached < stream.position:
            reader.backlog.behind.setdefault(number, reached)
