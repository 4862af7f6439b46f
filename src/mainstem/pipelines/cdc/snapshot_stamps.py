"""What a snapshot already holds, so that the stream does not tell it again. Pure.

A snapshot that was taken up again after a crash sees more than the point the stream begins at. The
rows that it read carry a *stamp*: the transactions it saw and the keys it read. A change is dropped
when its transaction was seen and its key was read; so each key's events stay in order, none doubled
and none lost.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

Key = tuple[int | bytes, ...]
_XID_SPAN: Final = 1 << 32


class Stamp(Struct, frozen=True):
    """Rows of ``table`` with keys greater than ``after`` (None: all), as ``snapshot`` saw them.

    ``snapshot`` is the server's ``xmin:xmax:xip,…``; no transaction that it saw ended after
    ``until``. It is empty where a server shows exactly what stands in its log before ``until``.
    """

    table: str
    snapshot: str
    until: int
    after: tuple[str, ...] | None = None


class Stamps:
    """All stamps of a stream; later ones were read later and go before earlier ones."""

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
        """Whether a change of ``key`` is in the snapshot already.

        ``change`` is its transaction's number, or its place in the log where stamps go by that.
        """
        for after, is_seen in self._by_table.get(table, ()):
            if after is None or key > after:
                return is_seen(change)
        return False

    def concerns(self, table: str) -> bool:
        """Whether any stamp is about the table."""
        return table in self._by_table


def comparable(texts: Sequence[str]) -> Key:
    """A key in the order in which the server sorts it: numbers, or bytes of UUIDs and C text."""
    return tuple(int(text[1:]) if text[0] == "n" else text[1:].encode() for text in texts)


def marked(value: bytes, *, is_number: bool) -> str:
    """A value of a key as stamps keep it, its kind first."""
    return ("n" if is_number else "t") + value.decode()


class SeenTransactions:
    """The transactions that a snapshot saw; numbers of the stream have 32 bits, its own have 64."""

    def __init__(self, text: str) -> None:
        low, high, running = text.split(":")
        self._until = int(high)
        self._running = frozenset(int(xid) % _XID_SPAN for xid in running.split(",") if xid)
        del low

    def includes(self, xid: int) -> bool:
        """Whether the snapshot shows what a transaction did."""
        # The stream's transactions lie within 2^31 of the snapshot's: the nearest is meant.
        distance = (xid - self._until) % _XID_SPAN
        return distance >= _XID_SPAN // 2 and xid not in self._running


def encode(stamps: Sequence[Stamp]) -> str:
    """As an offset keeps them."""
    return msgspec.json.encode(stamps).decode()


def decode(text: str) -> list[Stamp]:
    """As an offset kept them."""
    return msgspec.json.decode(text, type=list[Stamp]) if text else []
