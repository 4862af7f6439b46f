"""Converts points in time between formats.

This requires a session whose time zone is UTC, which a plan checks.
"""

from collections.abc import Iterable
from typing import Final, Literal
from zoneinfo import available_timezones

from msgspec import field
from pyspark.sql import Column
from pyspark.sql import functions as F

from mainstem.pipelines.transforms.casting import convert
from mainstem.pipelines.transforms.fields import is_string, text
from mainstem.pipelines.transforms.predicate import StepProblem
from mainstem.pipelines.transforms.rows import Rows, StepContext
from mainstem.pipelines.transforms.step import OnError, Step, path_problems

Format = Literal[
    "iso8601", "epoch_seconds", "epoch_millis", "epoch_micros", "date_only", "time_only"
]
Source = Literal["auto", "iso8601", "epoch_seconds", "epoch_millis", "epoch_micros", "pattern"]
_EPOCHS: Final = {"epoch_seconds": 1_000_000, "epoch_millis": 1_000, "epoch_micros": 1}
# Without a unit, a number's size determines it: in seconds these bounds are in the year 5138,
# in the next finer unit in 1973.
_SECONDS_UNTIL: Final = 100_000_000_000
_MILLIS_UNTIL: Final = 100_000_000_000_000
_MICROS_UNTIL: Final = 100_000_000_000_000_000
# The years 1 to 9999: the range of calendars and of the output formats.
_FIRST_MICROS: Final = -62_135_596_800_000_000
_LAST_MICROS: Final = 253_402_300_799_999_999
_OFFSET: Final = r"(?:[zZ]|[+-]\d{2}:?\d{2})$"


class TimestampConverter(Step, frozen=True, kw_only=True):
    """Converts points in time to another format.

    ``from`` is the format of the values: ``auto`` interprets numbers as seconds, milliseconds,
    microseconds or nanoseconds by their size and texts as ISO 8601; ``pattern`` parses texts by
    ``pattern``. A text without an offset is in ``timezone``. Values that cannot be parsed are
    handled as ``on_error`` specifies.
    """

    fields: tuple[str, ...]
    format: Format = "iso8601"
    source: Source = field(default="auto", name="from")
    pattern: str | None = None
    timezone: str = "UTC"
    on_error: OnError = "dead_letter"

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from path_problems("fields", self.fields)
        yield from zone_problems("timezone", self.timezone)
        if (self.source == "pattern") != (self.pattern is not None):
            yield "pattern", "pattern must be set with from: pattern, and only then", ""

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Converts the fields that a record has and that are not null."""

        def converted(value: Column) -> Column:
            return written(self._instant(value), self.format)

        return convert(rows, dict.fromkeys(self.fields, converted), self.on_error, turn)

    def _instant(self, value: Column) -> Column:
        match self.source:
            case "auto":
                return instant(value, self.timezone)
            case "iso8601":
                return _from_text(text(value), self.timezone)
            case "pattern":
                parsed = F.try_to_timestamp(text(value), F.lit(self.pattern))
                return F.to_utc_timestamp(parsed, self.timezone)
            case epoch:
                number = F.try_variant_get(value, "$", "decimal(38,9)")
                return _from_micros(number * F.lit(_EPOCHS[epoch]))


class TimezoneConverter(Step, frozen=True, kw_only=True):
    """Converts points in time to local time of another zone, with its offset.

    A text without an offset is in ``from``; numbers and texts with one are points in time already.
    With ``date_only`` only the date in that zone is kept.
    """

    fields: tuple[str, ...]
    to: str
    source: str = field(default="UTC", name="from")
    date_only: bool = False
    on_error: OnError = "dead_letter"

    def problems(self) -> Iterable[StepProblem]:
        """Problems that the types of the settings do not express."""
        yield from path_problems("fields", self.fields)
        yield from zone_problems("from", self.source)
        yield from zone_problems("to", self.to)

    def apply(self, rows: Rows, turn: StepContext) -> Rows:
        """Converts the fields that a record has and that are not null."""

        def converted(value: Column) -> Column:
            at = instant(value, self.source)
            wall = F.from_utc_timestamp(at, self.to)
            if self.date_only:
                return F.date_format(wall, "yyyy-MM-dd").cast("variant")
            minutes = ((F.unix_seconds(wall) - F.unix_seconds(at)) / 60).cast("int")
            return F.concat(_clock(wall), _offset(minutes)).cast("variant")

        return convert(rows, dict.fromkeys(self.fields, converted), self.on_error, turn)


def instant(value: Column, zone: str) -> Column:
    """The point in time of a value; null if it is invalid."""
    number = F.try_variant_get(value, "$", "decimal(38,9)")
    size = F.abs(number)
    micros = (
        F.when(size < _SECONDS_UNTIL, number * 1_000_000)
        .when(size < _MILLIS_UNTIL, number * 1_000)
        .when(size < _MICROS_UNTIL, number)
        .otherwise(number / 1_000)
    )
    return F.when(is_string(value), _from_text(text(value), zone)).otherwise(_from_micros(micros))


def written(at: Column, how: Format) -> Column:
    """A point in time in a format, as a variant; SQL's null if there is none."""
    match how:
        case "iso8601":
            plain = iso8601(at)
        case "date_only":
            plain = F.date_format(at, "yyyy-MM-dd")
        case "time_only":
            plain = F.substring_index(_clock(at), "T", -1)
        case epoch:
            plain = F.floor(F.unix_micros(at) / F.lit(_EPOCHS[epoch])).cast("bigint")
    return plain.cast("variant")


def iso8601(at: Column) -> Column:
    """``2026-03-01T12:00:00Z``, with milliseconds or microseconds if there are any."""
    return F.concat(_clock(at), F.lit("Z"))


def zone_problems(where: str, zone: str) -> Iterable[StepProblem]:
    """The problem of a time zone name."""
    if zone not in available_timezones():
        yield where, f"{zone!r} is not a time zone", "use an IANA name such as Europe/Berlin"


def _from_text(plain: Column, zone: str) -> Column:
    parsed = F.try_to_timestamp(F.trim(plain))
    has_offset = F.trim(plain).rlike(_OFFSET)
    return F.when(has_offset, parsed).otherwise(F.to_utc_timestamp(parsed, zone))


def _from_micros(micros: Column) -> Column:
    whole = F.floor(micros).try_cast("bigint")
    return F.when(whole.between(_FIRST_MICROS, _LAST_MICROS), F.timestamp_micros(whole))


def _clock(at: Column) -> Column:
    micros = F.pmod(F.unix_micros(at), F.lit(1_000_000))
    precise = (
        F.when(micros == 0, F.lit(""))
        .when(micros % 1000 == 0, F.date_format(at, ".SSS"))
        .otherwise(F.date_format(at, ".SSSSSS"))
    )
    return F.concat(F.date_format(at, "yyyy-MM-dd'T'HH:mm:ss"), precise)


def _offset(minutes: Column) -> Column:
    size = F.abs(minutes)
    sign = F.when(minutes < 0, "-").otherwise("+")
    return F.format_string("%s%02d:%02d", sign, (size / 60).cast("int"), size % 60)
