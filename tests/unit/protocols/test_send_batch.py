"""Frames of one turn leave in one write, in order, and are counted until the peer took them."""

from collections.abc import Callable, Sequence
from typing import Any

from mainstem.protocols.send_batch import SendBatch


class FakeConnection:
    """Keeps what it is sent, as a peer that takes nothing would make it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.due: list[Callable[[], None]] = []
        self.batch = SendBatch(self, self.due.append)

    @property
    def unsent_bytes(self) -> int:
        return sum(map(len, self.writes))

    def send(self, chunks: Sequence[Any]) -> None:
        self.writes.extend(chunks)

    def end_turn(self) -> None:
        due, self.due[:] = list(self.due), []
        for call in due:
            call()

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


def test_the_frames_of_one_turn_are_one_write() -> None:
    connection = FakeConnection()
    assert connection.batch.write(b"one ") == 4
    connection.batch.write_all([b"two ", b"three "], 10)
    connection.batch.write(b"four")
    assert connection.writes == []
    assert len(connection.due) == 1
    connection.end_turn()
    assert connection.writes == [b"one two three four"]


def test_a_flush_in_between_sends_at_once_and_the_rest_follows() -> None:
    connection = FakeConnection()
    connection.batch.write(b"now")
    connection.batch.flush()
    connection.batch.write(b"then")
    assert connection.writes == [b"now"]
    connection.end_turn()
    assert connection.writes == [b"now", b"then"]


def test_what_waits_here_and_at_the_connection_counts_as_unsent() -> None:
    connection = FakeConnection()
    connection.batch.write(b"12345")
    assert (connection.batch.waiting_bytes, connection.batch.unsent_bytes()) == (5, 5)
    connection.batch.flush()
    connection.batch.write_all([b"6", b"7"], 2)
    assert (connection.batch.waiting_bytes, connection.batch.unsent_bytes()) == (2, 7)


def test_it_notes_that_something_was_sent() -> None:
    batch = FakeConnection().batch
    batch.flush()
    assert not batch.has_sent
    batch.write(b"1")
    assert not batch.has_sent
    batch.flush()
    assert batch.has_sent
