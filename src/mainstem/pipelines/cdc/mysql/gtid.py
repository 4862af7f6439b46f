"""GTID sets: the transactions before a position in a log. Pure.

MariaDB names the last one of each domain (``0-1-270,1-2-15``); MySQL names all, as ranges of
numbers per server (``3e11fa47-…:1-270:272``). A GTID set has the same meaning on every server of a
replication group, while files and positions differ per server.
"""

import struct
from uuid import UUID

from mainstem.model.errors import Corrupt, ErrorCode, InvalidRequest

_TAGGED = 0xFF << 56


class GtidState:
    """The transactions before a position; grows with every transaction."""

    def __init__(self, text: str = "") -> None:
        self._last: dict[str, str] = {}
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self.add_all(text)

    def add_all(self, text: str) -> None:
        """Add the comma-separated GTIDs of a set."""
        for each in "".join(text.split()).split(","):
            if each:
                self.add(each)

    def add(self, name: str) -> None:
        """Add one transaction, or a range of one server.

        Raises:
            InvalidRequest: the GTID has an unsupported form.
        """
        server, *spans = name.split(":")
        if not spans:
            domain, _, _ = name.partition("-")
            self._last[domain] = name
            return
        for span in spans:
            first, _, last = span.partition("-")
            if not first.isdecimal():
                raise tagged(name)
            self._add(server.lower(), int(first), int(last or first) + 1)

    def _add(self, server: str, start: int, until: int) -> None:
        merged = []
        for low, high in self._ranges.get(server, ()):
            if high < start or low > until:
                merged.append((low, high))
            else:
                start, until = min(low, start), max(high, until)
        self._ranges[server] = sorted([*merged, (start, until)])

    @property
    def text(self) -> str:
        """The set in the text form of the servers."""
        named = [
            ":".join([server, *(_span(*each) for each in ranges)])
            for server, ranges in sorted(self._ranges.items())
        ]
        return ",".join([name for _, name in sorted(self._last.items())] + named)

    @property
    def packed(self) -> bytes:
        """The set in the binary form of MySQL's replication protocol."""
        parts = [struct.pack("<Q", len(self._ranges))]
        for server, ranges in sorted(self._ranges.items()):
            parts += [UUID(server).bytes, struct.pack("<Q", len(ranges))]
            parts += [struct.pack("<QQ", *each) for each in ranges]
        return b"".join(parts)


def unpacked(data: bytes) -> str:
    """Decode a PREVIOUS_GTIDS event: all transactions before a file.

    Raises:
        InvalidRequest: it has an unsupported form.
    """
    try:
        (count,) = struct.unpack_from("<Q", data)
        if count & _TAGGED:
            raise tagged("the log")
        state, at = GtidState(), 8
        for _ in range(count):
            server = str(UUID(bytes=data[at : at + 16]))
            (ranges,) = struct.unpack_from("<Q", data, at + 16)
            at += 24
            for _ in range(ranges):
                state._add(server, *struct.unpack_from("<QQ", data, at))
                at += 16
    except (struct.error, ValueError) as error:
        raise Corrupt(f"not a GTID set: {error}", subject="binlog") from None
    return state.text


def tagged(name: str) -> InvalidRequest:
    """The error for tagged GTIDs."""
    return InvalidRequest(
        ErrorCode.INVALID_CONFIG,
        "tagged GTIDs are not supported",
        subject=name,
        remedy="leave gtid_next at AUTOMATIC",
    )


def _span(start: int, until: int) -> str:
    return f"{start}" if until == start + 1 else f"{start}-{until - 1}"
