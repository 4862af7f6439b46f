"""The settings of a topic: Kafka's names, types, defaults and bounds, and ``flush.policy``.

A topic holds only what was set on it. What it does not set comes from the node-level names
(``log.retention.ms`` for ``retention.ms``, …) and in the end from the defaults here.
``TopicSettings`` is the parsed outcome: plain typed attributes for the paths that run per batch.
"""

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from mainstem.model import limits
from mainstem.model.config.key import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    ConfigKey,
    Synonym,
    Value,
    unknown_key,
)
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.model.limits import MIB

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000


def _key(name: str, kind: str, default: str, *synonyms: Synonym | str, **rest: object) -> ConfigKey:
    names = tuple(Synonym(s) if isinstance(s, str) else s for s in synonyms)
    return ConfigKey(name=name, type=kind, default=default, synonyms=names, **rest)  # type: ignore[arg-type]


_KEYS = (
    _key(
        "cleanup.policy", LIST, "delete", "log.cleanup.policy",
        one_of=("compact", "delete"),
        documentation="What happens to old records: `delete` drops them by age and size, `compact` "
        "keeps the last record of each key, both together do both. Empty keeps everything.",
    ),
    _key(
        "compression.type", STRING, "producer", "compression.type",
        one_of=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        documentation="The codec of stored batches. `producer` stores each batch as it was sent; "
        "any "
        "other value makes the node recompress what arrives in another codec.",
    ),
    _key(
        "compression.gzip.level", INT, "-1", "compression.gzip.level",
        at_least=1, at_most=9, also=(-1,),
        documentation="Effort of gzip when the node compresses; -1 is the library's default.",
    ),
    _key(
        "compression.lz4.level", INT, "9", "compression.lz4.level",
        at_least=1, at_most=17,
        documentation="Effort of lz4 when the node compresses.",
    ),
    _key(
        "compression.zstd.level", INT, "3", "compression.zstd.level",
        at_least=-131072, at_most=22,
        documentation="Effort of zstd when the node compresses.",
    ),
    _key(
        "delete.retention.ms", LONG, "86400000", "log.cleaner.delete.retention.ms",
        at_least=0,
        documentation="How long a compacted topic keeps the tombstone of a deleted key, so that a "
        "reader that started before still sees the deletion.",
    ),
    _key(
        "file.delete.delay.ms", LONG, "60000", "log.segment.delete.delay.ms",
        at_least=0,
        documentation="Accepted for compatibility: readers of a deleted segment keep it open, so "
        "its files are deleted without delay.",
    ),
    _key(
        "flush.messages", LONG, str(LONG_MAX), "log.flush.interval.messages",
        at_least=1,
        documentation="Accepted for compatibility: under `fsync` every record is synced before it "
        "counts, under `written` the operating system chooses when.",
    ),
    _key(
        "flush.ms", LONG, str(LONG_MAX),
        "log.flush.interval.ms", "log.flush.scheduler.interval.ms",
        at_least=0,
        documentation="Accepted for compatibility, as `flush.messages` is.",
    ),
    _key(
        "flush.policy", STRING, "fsync", "log.flush.policy",
        one_of=("fsync", "written"),
        documentation="When a record counts as stored: `fsync` once the disk has it, `written` "
        "once the operating system has it (as Kafka does; a power failure can lose the last "
        "records).",
    ),
    _key(
        "index.interval.bytes", INT, "4096", "log.index.interval.bytes",
        at_least=0,
        documentation="How many bytes of records lie between two entries of the offset index.",
    ),
    _key(
        "max.compaction.lag.ms", LONG, str(LONG_MAX), "log.cleaner.max.compaction.lag.ms",
        at_least=1,
        documentation="A record of a compacted topic is compacted after this time at the latest.",
    ),
    _key(
        "max.message.bytes", INT, "1048588", "message.max.bytes",
        at_least=0, at_most=limits.BATCH_BYTES_MAX,
        documentation="The largest batch that the topic accepts, in bytes as stored. Nodes copy a "
        "batch in one piece, so there is an upper bound; a larger value stored by an earlier "
        "release counts as that bound.",
    ),
    _key(
        "message.timestamp.after.max.ms", LONG, "3600000", "log.message.timestamp.after.max.ms",
        at_least=0,
        documentation="How far ahead of the node's clock a record's timestamp may lie; later ones "
        "are refused. Without effect for LogAppendTime.",
    ),
    _key(
        "message.timestamp.before.max.ms", LONG, str(LONG_MAX),
        "log.message.timestamp.before.max.ms",
        at_least=0,
        documentation="How far behind the node's clock a record's timestamp may lie; earlier ones "
        "are refused. Without effect for LogAppendTime.",
    ),
    _key(
        "message.timestamp.difference.max.ms", LONG, str(LONG_MAX),
        "log.message.timestamp.difference.max.ms",
        at_least=0,
        documentation="Older name that bounds both directions. It counts where the newer name of "
        "that direction is not set.",
    ),
    _key(
        "message.timestamp.type", STRING, "CreateTime", "log.message.timestamp.type",
        one_of=("CreateTime", "LogAppendTime"),
        documentation="Whether the timestamp of a record is the producer's or the time of its "
        "append.",
    ),
    _key(
        "min.cleanable.dirty.ratio", DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio",
        at_least=0, at_most=1,
        documentation="The share of not yet compacted bytes from which a stream is compacted.",
    ),
    _key(
        "min.compaction.lag.ms", LONG, "0", "log.cleaner.min.compaction.lag.ms",
        at_least=0,
        documentation="How long every record stays readable before compaction may remove it.",
    ),
    _key(
        "min.insync.replicas", INT, "1", "min.insync.replicas",
        at_least=1,
        documentation="In-sync replicas that a range needs to accept records with acks=all.",
    ),
    _key(
        "preallocate", BOOLEAN, "false", "log.preallocate",
        documentation="Accepted for compatibility: space is always reserved ahead, in steps that "
        "double up to 64 MiB.",
    ),
    _key(
        "retention.bytes", LONG, "-1", "log.retention.bytes",
        documentation="How large a partition may grow before its oldest segments are dropped; "
        "-1 is no limit. Needs the cleanup policy `delete`.",
    ),
    _key(
        "retention.ms", LONG, "604800000",
        "log.retention.ms",
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
        at_least=-1,
        documentation="How long records are kept; -1 means without limit. Needs the policy "
        "`delete`.",
    ),
    _key(
        "segment.bytes", INT, "1073741824", "log.segment.bytes",
        at_least=MIB, stored_at_least=14,
        documentation="How large a segment file grows before the next one starts. Retention and "
        "compaction work on whole segments.",
    ),
    _key(
        "segment.index.bytes", INT, "10485760", "log.index.size.max.bytes",
        at_least=4,
        documentation="Accepted for compatibility: an index is as large as its segment needs.",
    ),
    _key(
        "segment.jitter.ms", LONG, "0",
        "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", _HOUR_MS),
        at_least=0,
        documentation="Up to this much is taken off `segment.ms`, by stream, so that not all start "
        "a new segment at once.",
    ),
    _key(
        "segment.ms", LONG, "604800000", "log.roll.ms", Synonym("log.roll.hours", _HOUR_MS),
        at_least=1,
        documentation="How old the first record of a segment may grow before the next one starts.",
    ),
    _key(
        "unclean.leader.election.enable", BOOLEAN, "false", "unclean.leader.election.enable",
        documentation="Whether a stream may go on without the replicas that hold its last records. "
        "Without effect on a single node, which has no other replica to go on with.",
    ),
)  # fmt: skip

TOPIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _KEYS}
"""Every topic setting by name."""


INTERNAL_SEGMENT_BYTES = ConfigKey(
    name="internal.segment.bytes",
    type=INT,
    default=None,
    at_least=14,
    documentation="Overrides `segment.bytes` with sizes below its minimum, for tests.",
)
"""As in Kafka: accepted and applied, but neither listed nor described."""

SETTABLE_KEYS = {**TOPIC_KEYS, INTERNAL_SEGMENT_BYTES.name: INTERNAL_SEGMENT_BYTES}
"""Every name that may be set on a topic."""


class TopicSettings(Struct, frozen=True, kw_only=True):
    """Every setting of one topic, parsed. Units are in the names."""

    compact: bool
    delete: bool
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    flush_policy: str
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    timestamp_after_max_ms: int
    timestamp_before_max_ms: int
    log_append_time: bool
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election: bool

    @property
    def fsync(self) -> bool:
        """Whether a record counts as stored only once the disk has it."""
        return self.flush_policy == "fsync"


def topic_settings(
    configs: Mapping[str, str], node_configs: Mapping[str, str] | None = None
) -> TopicSettings:
    """The parsed settings of a topic with ``configs`` on a node with ``node_configs``.

    Args:
        configs: what is set on the topic, by topic-level names.
        node_configs: what is set on the node, by node-level names; other names are ignored.
    """
    return _parsed(frozenset(configs.items()), frozenset((node_configs or {}).items()))


@lru_cache(limits.TOPIC_SETTINGS_CACHED_MAX)
def _parsed(
    topic_level: frozenset[tuple[str, str]], node_level: frozenset[tuple[str, str]]
) -> TopicSettings:
    """Cache parsed settings, which many topics share."""
    configs, node = dict(topic_level), dict(node_level)
    got: dict[str, Value] = {}
    for key in _KEYS:
        text = configs.get(key.name)
        text = node_default(key, node) if text is None else text
        got[key.name] = key.parse(text, stored=True)
    small = configs.get(INTERNAL_SEGMENT_BYTES.name)
    if small is not None:
        got["segment.bytes"] = INTERNAL_SEGMENT_BYTES.parse(small)
    difference = got.pop("message.timestamp.difference.max.ms")
    if difference != LONG_MAX:
        for name in ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms"):
            if name not in configs and TOPIC_KEYS[name].synonyms[0].name not in node:
                got[name] = difference
    policy = got.pop("cleanup.policy")
    assert isinstance(policy, tuple)
    fields: dict[str, Value] = {
        "compact": "compact" in policy,
        "delete": "delete" in policy,
        "timestamp_after_max_ms": got.pop("message.timestamp.after.max.ms"),
        "timestamp_before_max_ms": got.pop("message.timestamp.before.max.ms"),
        "log_append_time": got.pop("message.timestamp.type") == "LogAppendTime",
        "unclean_leader_election": got.pop("unclean.leader.election.enable"),
    }
    fields.update({name.replace(".", "_"): value for name, value in got.items()})
    return TopicSettings(**fields)  # type: ignore[arg-type]


def node_default(key: ConfigKey, node_configs: Mapping[str, str]) -> str:
    """The text that a topic which does not set ``key`` gets on this node."""
    for synonym in key.synonyms:
        text = node_configs.get(synonym.name)
        if text is not None:
            return text if synonym.factor == 1 else scaled(text, synonym.factor)
    assert key.default is not None
    return key.default


def scaled(text: str, factor: int) -> str:
    """A value of a coarser unit (hours) in the finer one (ms); -1 stays "without limit"."""
    number = int(text)
    return str(number if number < 0 else number * factor)


def check_topic_configs(
    configs: Mapping[str, str],
    node_configs: Mapping[str, str] | None = None,
    *,
    kept: Mapping[str, str] | None = None,
) -> TopicSettings:
    """Check that a topic may have ``configs``; the settings that follow.

    What it has already (``kept``) may lie outside bounds that came later.

    Raises:
        InvalidRequest: an unknown name, a value out of bounds, or values that contradict.
    """
    for name, text in configs.items():
        key = SETTABLE_KEYS.get(name)
        if key is None:
            raise unknown_key(name, TOPIC_KEYS, "topic")
        if kept is None or kept.get(name) != text:
            key.parse(text)
    settings = topic_settings(configs, node_configs)
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        raise InvalidRequest(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms ({settings.min_compaction_lag_ms}) is larger than "
            f"max.compaction.lag.ms ({settings.max_compaction_lag_ms})",
            subject="max.compaction.lag.ms",
        )
    return settings
