"""The offset of a MySQL or MariaDB stream, as stored in Spark's checkpoint. Pure."""

from msgspec import Struct

_POSITION_BITS = 32  # the width of the end position in an event header


class BinlogPosition(Struct, frozen=True):
    """A position in the log of one server: a file's name and an offset in it."""

    file: str = ""
    position: int = 0

    @property
    def order(self) -> int:
        """Orders positions by the number at the end of the file's name, then by offset."""
        return int(self.file.rpartition(".")[2] or 0) << _POSITION_BITS | self.position

    def __str__(self) -> str:
        """The position as the servers' tools write it."""
        return f"{self.file}:{self.position}"


class MysqlOffset(Struct, frozen=True, kw_only=True):
    """The offset of a query.

    ``file`` of the spool and ``spot`` of ``server``'s log are processed; ``gtid`` is the same
    position for every server of its group; ``epoch`` counts logs, ``beat`` heartbeats, and
    ``at_ms`` is the time at which the offset was determined.
    """

    file: int = 0
    spot: BinlogPosition = BinlogPosition()
    server: str = ""
    gtid: str = ""
    epoch: int = 0
    beat: int = 0
    at_ms: int = 0
    stamps: str = ""

    def goes_on_to(self, until: "MysqlOffset") -> bool:
        """Whether two offsets are in the same log, and the log between them is not empty."""
        is_same = bool(self.spot.file) and self.epoch == until.epoch
        return is_same and self.spot.order < until.spot.order
