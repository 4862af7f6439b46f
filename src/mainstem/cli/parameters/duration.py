"""Parses durations and amounts: ``12h``, ``30d``, ``10MB``, ``1Mi``. Pure."""

import math
import re

from mainstem.cli.errors import UsageFailure

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_FACTORS = {
    "": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30,
}  # fmt: skip


def parse_duration_ms(text: str) -> int:
    """Parses a duration; returns milliseconds.

    Raises:
        UsageFailure: the text is not a duration, or is zero.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", text.strip())
    span = round(float(found[1]) * _MS[found[2]]) if found else 0
    if span <= 0:
        raise UsageFailure("not a duration", subject=text, remedy="write 90s, 12h or 30d")
    return span


def parse_amount(text: str) -> float:
    """Parses a number with an optional factor: k, M, G are thousands, Ki, Mi, Gi are 1024s.

    Raises:
        UsageFailure: the text is not a number above 0.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmg]i?)?b?", text.strip().lower())
    amount = float(found[1]) * _FACTORS[found[2] or ""] if found else 0.0
    if not 0 < amount < math.inf:
        raise UsageFailure("not a number above 0", subject=text, remedy="write 500, 10MB or 1Mi")
    return amount
