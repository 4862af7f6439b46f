"""Parses points in time: a date, milliseconds since 1970, or a time ago."""

import re
from datetime import UTC, datetime

from mainstem.cli.errors import UsageFailure

_AGO = re.compile(r"-(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_timestamp(text: str, now_ms: int) -> int:
    """Parses a point in time; returns milliseconds since 1970.

    ``1700000000000`` is used as is, ``-2h`` is two hours ago, ``2026-01-31T12:00`` is local
    time unless it has ``Z`` or an offset.

    Raises:
        UsageFailure: the text has none of these forms.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    if match := _AGO.fullmatch(text):
        return now_ms - round(float(match["number"]) * _UNIT_MS[match["unit"]])
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageFailure(
            "not a point in time",
            subject=text,
            remedy="write 2026-01-31T12:00:00Z, milliseconds since 1970, or -2h",
        ) from None


def format_timestamp(timestamp_ms: int) -> str:
    """Format a timestamp for tables."""
    if timestamp_ms < 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
