"""The offset of a PostgreSQL stream, as stored in Spark's checkpoint. Pure."""

from msgspec import Struct


class PostgresOffset(Struct, frozen=True, kw_only=True):
    """The offset of a query.

    ``lsn`` of the log and ``file`` of the spool are processed; ``epoch`` counts slots; ``at_ms`` is
    the time at which the offset was determined, ``beat`` counts heartbeats.
    """

    lsn: int = 0
    file: int = 0
    epoch: int = 0
    beat: int = 0
    at_ms: int = 0
    stamps: str = ""
