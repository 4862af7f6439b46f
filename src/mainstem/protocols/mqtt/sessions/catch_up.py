"""Readers that are behind: reads the log again for each of them, in pieces.

A piece that is not available yet, because another node writes the stream, is requested again a
little later.
"""

from collections.abc import Callable

from mainstem.model.message import Message
from mainstem.protocols.mqtt.sessions.backlog import StreamPosition
from mainstem.protocols.mqtt.sessions.client_session import SessionReader
from mainstem.protocols.mqtt.streams.tail import Tail


class CatchUpReaders:
    """Reads the log for readers that have sent their backlog."""

    def __init__(
        self,
        tail: Tail,
        soon: Callable[[Callable[[], None]], object],
        later: Callable[[Callable[[], None]], object],
    ) -> None:
        self._tail = tail
        self._soon = soon
        self._later = later
        self._waiting: dict[SessionReader, None] = {}
        self._again: dict[SessionReader, None] = {}

    def add(self, reader: SessionReader) -> None:
        """Continue for a reader that has space again."""
        if not self._waiting:
            self._soon(self._read_on)
        self._waiting[reader] = None

    def ask_again(self, reader: SessionReader) -> None:
        """Drain a reader again later, because a message cannot be read now."""
        if not self._again:
            self._later(self._drain_again)
        self._again[reader] = None

    def _drain_again(self) -> None:
        again, self._again = self._again, {}
        for reader in again:
            reader.drain()

    def _read_on(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for reader in waiting:
            for number, offset in list(reader.backlog.behind.items()):
                if not self._read_for(reader, number, offset):
                    self.ask_again(reader)
            if reader not in self._again:
                reader.drain()

    def _read_for(self, reader: SessionReader, number: int, offset: int) -> bool:
        """Add one piece of a stream to a reader's backlog; False if it cannot be read now."""
        stream = self._tail.streams.get(number)
        if stream is None:
            reader.backlog.forget(number)
            return True
        del reader.backlog.behind[number]

        def found(place: StreamPosition, topic: str, _message: Message) -> None:
            if reader.grants_for(topic):
                reader.backlog.put(place)

        reached = self._tail.scan(number, offset, found)
        if reached < stream.position:
            reader.backlog.behind.setdefault(number, reached)
        return reached > offset or reached >= stream.position
