"""Where a stream of changes stands, as Spark's checkpoint keeps it. Pure."""

from msgspec import Struct


class PostgresOffset(Struct, frozen=True, kw_only=True):
    """Where a stream stands.

    ``lsn`` of the log and ``file`` of the spool are done; ``epoch`` counts slots; ``at_ms`` is the
    moment at which it was decided to go this far, ``beat`` counts heartbeats.
    """

    lsn: int = 0
    file: int = 0
    epoch: int = 0
    beat: int = 0
    at_ms: int = 0
    stamps: str = ""
