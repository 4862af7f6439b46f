"""Where a stream of a MySQL or MariaDB server stands, as Spark's checkpoint keeps it. Pure."""

from msgspec import Struct

_POSITION_BITS = 32  # as many as an event has to say where it ends


class BinlogPosition(Struct, frozen=True):
    """A place in the log of one server: a file's name and a position in it."""

    file: str = ""
    position: int = 0

    @property
    def order(self) -> int:
        """Spots compare by the number at the end of the file's name, then by position."""
        return int(self.file.rpartition(".")[2] or 0) << _POSITION_BITS | self.position

    def __str__(self) -> str:
        """As servers' tools write it."""
        return f"{self.file}:{self.position}"


class MysqlOffset(Struct, frozen=True, kw_only=True):
    """How far a query has come.

    ``file`` of the spool and ``spot`` of ``server``'s log are done; ``gtid`` names the same place
    for every server of its group; ``epoch`` counts logs, ``beat`` heartbeats, and ``at_ms`` is the
    moment at which it was decided to go this far.
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
        """Whether the log between two positions is one, and not empty."""
        is_same = bool(self.spot.file) and self.epoch == until.epoch
        return is_same and self.spot.order < until.spot.order
