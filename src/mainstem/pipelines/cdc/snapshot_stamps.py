"""Stamps: what a snapshot already contains, so that the stream does not repeat it. Pure.

A snapshot that was resumed after a crash sees more than the position at which the stream starts.
Its rows have a *stamp*: the transactions that it saw and the keys that it read. A change is dropped
if its transaction was seen and its key was read; so each key's events stay in order, without
duplicates or losses.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

Key = tuple[int | bytes, ...]
_XID_SPAN: Final = 1 << 32


class Stamp(Struct, frozen=True):
    """Rows of ``table`` with keys greater than ``after`` (None: all), as seen by ``snapshot``.

    ``snapshot`` is the server's ``xmin:xmax:xip,…``; no transaction that it saw ended after
    ``until``. It is empty if a snapshot contains exactly the changes in the log before ``until``.
    """

    table: str
    snapshot: str
    until: int
    after: tuple[str, ...] | None = None


class Stamps:
    """All stamps of a stream; later ones take precedence."""

    def __init__(self, stamps: Sequence[Stamp]) -> None:
        self.until = max((stamp.until for stamp in stamps), default=0)
        self._by_table: dict[str, list[tuple[Key | None, Callable[[int], bool]]]] = {}
        for stamp in reversed(stamps):
            after = None if stamp.after is None else comparable(stamp.after)
            seen = (
                SeenTransactions(stamp.snapshot).includes if stamp.snapshot else stamp.until.__gt__
            )
            self._by_table.setdefault(stamp.table, []).append((after, seen))

    def holds(self, table: str, key: Key, change: int) -> bool:
        """Whether the snapshot already contains a change of ``key``.

        ``change`` is its transaction id, or its position in the log if stamps use positions.
        """
        for after, is_seen in self._by_table.get(table, ()):
            if after is None or key > after:
                return is_seen(change)
        return False

    def concerns(self, table: str) -> bool:
        """Whether the table has a stamp."""
        return table in self._by_table


def comparable(texts: Sequence[str]) -> Key:
    """A key that sorts as on the server: numbers, or bytes of UUIDs and C text."""
    return tuple(int(text[1:]) if text[0] == "n" else text[1:].encode() for text in texts)


def marked(value: bytes, *, is_number: bool) -> str:
    """A key value as stored in stamps, its kind first."""
    return ("n" if is_number else "t") + value.decode()


class SeenTransactions:
    """The transactions that a snapshot saw; ids have 32 bits in the stream, 64 in the snapshot."""

    def __init__(self, text: str) -> None:
        low, high, running = text.split(":")
        self._until = int(high)
        self._running = frozenset(int(xid) % _XID_SPAN for xid in running.split(",") if xid)
        del low

    def includes(self, xid: int) -> bool:
        """Whether the snapshot contains the changes of a transaction."""
        # The stream's transactions are within 2^31 of the snapshot's: the nearest one is meant.
        distance = (xid - self._until) % _XID_SPAN
        return distance >= _XID_SPAN // 2 and xid not in self._running


def encode(stamps: Sequence[Stamp]) -> str:
    """The stamps as stored in an offset."""
    return msgspec.json.encode(stamps).decode()


def decode(text: str) -> list[Stamp]:
    """The stamps of an offset."""
    return msgspec.json.decode(text, type=list[Stamp]) if text else []
