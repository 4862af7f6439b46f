"""Pure: which records may go by age or by size. Only prefixes go, and nothing at or above a floor.

The unit is what the caller can delete at once: a segment of the open range or a sealed range. The
last piece is being written to and stays, unless the caller can start another one first.
"""

from collections.abc import Sequence
from dataclasses import dataclass

UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class RetentionPiece:
    """A stretch of a stream that can be deleted as a whole."""

    start: int
    until: int
    size_bytes: int
    max_timestamp: int


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Kafka's ``retention.ms`` and ``retention.bytes``; -1 keeps everything."""

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED


def retention_start(
    pieces: Sequence[RetentionPiece],
    settings: RetentionSettings,
    *,
    now_ms: int,
    floor: int,
    spare_last: bool = True,
) -> int | None:
    """The offset at which the stream may start from now on; None when all of it stays.

    ``floor`` is the first offset that must stay whatever the settings say: the committed end, or
    what a reader has pinned.
    """
    excess_bytes = 0
    if settings.retention_bytes != UNLIMITED:
        excess_bytes = sum(piece.size_bytes for piece in pieces) - settings.retention_bytes
    start = None
    for piece in pieces[:-1] if spare_last else pieces:
        is_old = (
            settings.retention_ms != UNLIMITED
            and piece.max_timestamp >= 0
            and now_ms - piece.max_timestamp > settings.retention_ms
        )
        # As in Kafka, size alone removes a piece only if what is left still fills the limit.
        is_excess = excess_bytes >= piece.size_bytes > 0
        if piece.until > floor or not (is_old or is_excess):
            break
        excess_bytes -= piece.size_bytes
        start = piece.until
    return start
