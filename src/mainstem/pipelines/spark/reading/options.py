"""The options of ``format("mainstem")`` for reading: names and defaults of Spark's Kafka source.

Pure. Guarantees: an unknown option is refused, with the name that was probably meant; options that
contradict each other are refused.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from mainstem.client.values import TopicPartition
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.pipelines.problems import nearest
from mainstem.pipelines.spark import security
from mainstem.pipelines.spark.reading import offset_map
from mainstem.pipelines.spark.reading.offset_map import Offsets

EARLIEST: Final = -2
LATEST: Final = -1

_STRATEGIES: Final = ("subscribe", "subscribepattern", "assign")
_STARTS: Final = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
_ENDS: Final = ("endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets")
_NAMES: Final = {
    "kafka.bootstrap.servers",
    *_STRATEGIES,
    *_STARTS,
    *_ENDS,
    "startingoffsetsbytimestampstrategy",
    "maxoffsetspertrigger",
    "minoffsetspertrigger",
    "maxtriggerdelay",
    "minpartitions",
    "maxrecordsperpartition",
    "includeheaders",
    "includeplainfields",
    "failondataloss",
    "groupidprefix",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.client.id",
}
# Tuning of Spark's Kafka consumers, which has no equivalent here.
_WITHOUT_EFFECT: Final = {
    "fetchoffset.numretries",
    "fetchoffset.retryintervalms",
    "kafkaconsumer.polltimeoutms",
    "includetimestamptype",
    "path",
}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


class OffsetBound(NamedTuple):
    """Where reading starts or ends: by offset, or by time in milliseconds.

    ``everywhere`` applies to partitions that ``by_partition`` does not contain.
    """

    everywhere: int | None
    by_partition: Offsets
    is_time: bool = False


class ReadOptions(NamedTuple):
    """What to read and how."""

    servers: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    start: OffsetBound = OffsetBound(EARLIEST, {})
    end: OffsetBound = OffsetBound(LATEST, {})
    late_time_is_latest: bool = False
    rows_max: int | None = None
    rows_min: int | None = None
    delay_max_s: float = 900.0
    parts_min: int = 0
    part_rows_max: int | None = None
    with_headers: bool = False
    with_fields: bool = False
    fail_on_data_loss: bool = True
    group: str | None = None
    group_prefix: str = "spark"
    read_committed: bool = True


def parse_read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options that Spark passes.

    Raises:
        InvalidRequest: an option is unknown, missing or invalid.
    """
    options = {name.lower(): value for name, value in given.items()}
    check_names(options, _NAMES | _WITHOUT_EFFECT)
    chosen = [name for name in _STRATEGIES if name in options]
    if len(chosen) != 1:
        raise refusal(
            "subscribe",
            f"{len(chosen)} of subscribe, subscribePattern and assign",
            "set exactly one of them",
        )
    start, end = _edges(options, streaming=streaming)
    isolation = options.get("kafka.isolation.level", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise refusal(
            "kafka.isolation.level", f"{isolation!r}", "use read_committed or read_uncommitted"
        )
    names = tuple(name.strip() for name in options.get("subscribe", "").split(",") if name.strip())
    assigned = offset_map.parse_assignment(options.get("assign", "{}"), "assign")
    return ReadOptions(
        servers=servers_of(options),
        topics=names or tuple(dict.fromkeys(each.topic for each in assigned)),
        pattern=options.get("subscribepattern"),
        assigned=tuple(assigned),
        start=start,
        end=end,
        late_time_is_latest=_late_is_latest(options),
        rows_max=number(options, "maxoffsetspertrigger"),
        rows_min=number(options, "minoffsetspertrigger"),
        delay_max_s=duration_s(options.get("maxtriggerdelay", "15m"), "maxTriggerDelay"),
        parts_min=number(options, "minpartitions") or 0,
        part_rows_max=number(options, "maxrecordsperpartition"),
        with_headers=flag(options, "includeheaders", default=False),
        with_fields=flag(options, "includeplainfields", default=False),
        fail_on_data_loss=flag(options, "failondataloss", default=True),
        group=options.get("kafka.group.id"),
        group_prefix=options.get("groupidprefix", "spark"),
        read_committed=isolation == "read_committed",
    )


def check_names(options: Mapping[str, str], known: Collection[str]) -> None:
    """Refuse unknown options, so that a misspelt limit is not ignored."""
    known = set(known) | security.OPTIONS
    for name in options:
        if name not in known:
            raise refusal(name, "unknown option", nearest(name, known) or "remove it")


def servers_of(options: Mapping[str, str]) -> str:
    """The bootstrap servers."""
    servers = options.get("kafka.bootstrap.servers", "").strip()
    if not servers:
        raise refusal("kafka.bootstrap.servers", "is missing", "set host:port of a node")
    return servers


def number(options: Mapping[str, str], name: str) -> int | None:
    """A positive number, if the option is set."""
    text = options.get(name)
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) < 1:
        raise refusal(name, f"{text!r} is not a positive number", "use a positive integer")
    return int(text)


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """A boolean option."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise refusal(name, f"{text!r}", "use true or false")
    return text == "true"


def duration_s(text: str, option: str) -> float:
    """``15m``, ``300s``, ``1h``, ``500ms`` in seconds."""
    digits = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz").strip()
    unit = text.strip()[len(digits) :].strip() or "s"
    if not digits.isdigit() or unit not in _SECONDS:
        raise refusal(option, f"{text!r} is not a duration", "use 15m, 300s or 1h")
    return int(digits) * _SECONDS[unit]


def refusal(option: str, cause: str, remedy: str) -> InvalidRequest:
    """The error for an invalid option."""
    return InvalidRequest(ErrorCode.INVALID_CONFIG, cause, subject=option, remedy=remedy)


def _edges(options: Mapping[str, str], *, streaming: bool) -> tuple[OffsetBound, OffsetBound]:
    """Where reading starts and ends."""
    start = _edge(options, _STARTS, LATEST if streaming else EARLIEST)
    end = _edge(options, _ENDS, LATEST)
    if streaming and any(name in options for name in _ENDS):
        raise refusal("endingOffsets", "a stream has no end", "remove it, or read a batch")
    if EARLIEST in (end.everywhere, *end.by_partition.values()) and not end.is_time:
        raise refusal("endingOffsets", "reading cannot end at the earliest offset", "use latest")
    if not streaming and LATEST in (start.everywhere, *start.by_partition.values()):
        raise refusal(
            "startingOffsets", "a batch cannot start at the latest offset", "use earliest"
        )
    return start, end


def _edge(options: Mapping[str, str], names: tuple[str, str, str], default: int) -> OffsetBound:
    """The first of a timestamp, timestamps by partition and offsets that is set."""
    time, times, offsets = names
    if time in options:
        text = options[time]
        if not text.isdigit():
            raise refusal(time, f"{text!r} is not a time", "use milliseconds since 1970")
        return OffsetBound(int(text), {}, is_time=True)
    if times in options:
        return OffsetBound(None, offset_map.parse(options[times], times), is_time=True)
    text = options.get(offsets, "")
    words = {"earliest": EARLIEST, "latest": LATEST, "": default}
    if text.lower() in words:
        return OffsetBound(words[text.lower()], {})
    return OffsetBound(default, offset_map.parse(text, offsets))


def _late_is_latest(options: Mapping[str, str]) -> bool:
    strategy = options.get("startingoffsetsbytimestampstrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise refusal("startingOffsetsByTimestampStrategy", f"{strategy!r}", "use error or latest")
    return strategy == "latest"
