"""Settings: Kafka's names and bounds, parsed once, refused with what would help."""

import pytest

from mainstem.model import limits
from mainstem.model.config.key import LONG_MAX
from mainstem.model.config.node import NODE_KEYS, check_node_configs
from mainstem.model.config.topic import TOPIC_KEYS, check_topic_configs, topic_settings
from mainstem.model.errors import ErrorCode, InvalidRequest

# Name, type, default, lowest and highest value of Kafka 4.3.
KAFKA = [
    ("cleanup.policy", "list", "delete", None, None),
    ("compression.gzip.level", "int", "-1", 1, 9),
    ("compression.lz4.level", "int", "9", 1, 17),
    ("compression.type", "string", "producer", None, None),
    ("compression.zstd.level", "int", "3", -131072, 22),
    ("delete.retention.ms", "long", "86400000", 0, None),
    ("file.delete.delay.ms", "long", "60000", 0, None),
    ("flush.messages", "long", str(LONG_MAX), 1, None),
    ("flush.ms", "long", str(LONG_MAX), 0, None),
    ("index.interval.bytes", "int", "4096", 0, None),
    ("max.compaction.lag.ms", "long", str(LONG_MAX), 1, None),
    ("max.message.bytes", "int", "1048588", 0, 32 * 1024 * 1024),
    ("message.timestamp.after.max.ms", "long", "3600000", 0, None),
    ("message.timestamp.before.max.ms", "long", str(LONG_MAX), 0, None),
    ("message.timestamp.type", "string", "CreateTime", None, None),
    ("min.cleanable.dirty.ratio", "double", "0.5", 0, 1),
    ("min.compaction.lag.ms", "long", "0", 0, None),
    ("min.insync.replicas", "int", "1", 1, None),
    ("preallocate", "boolean", "false", None, None),
    ("retention.bytes", "long", "-1", None, None),
    ("retention.ms", "long", "604800000", -1, None),
    ("segment.bytes", "int", "1073741824", 1048576, None),
    ("segment.index.bytes", "int", "10485760", 4, None),
    ("segment.jitter.ms", "long", "0", 0, None),
    ("segment.ms", "long", "604800000", 1, None),
    ("unclean.leader.election.enable", "boolean", "false", None, None),
]


@pytest.mark.parametrize(("name", "kind", "default", "lowest", "highest"), KAFKA)
def test_a_setting_has_the_type_default_and_bounds_that_kafka_gives_it(
    name: str, kind: str, default: str, lowest: float | None, highest: float | None
) -> None:
    key = TOPIC_KEYS[name]
    assert (key.type, key.default, key.at_least, key.at_most) == (kind, default, lowest, highest)


def test_the_only_settings_beyond_kafkas_are_the_flush_policy_and_an_older_name() -> None:
    own = set(TOPIC_KEYS) - {row[0] for row in KAFKA}
    assert own == {"flush.policy", "message.timestamp.difference.max.ms"}


def test_a_topic_that_sets_nothing_gets_the_defaults() -> None:
    settings = topic_settings({})
    assert settings.retention_ms == 604_800_000
    assert settings.segment_bytes == 2**30
    assert (settings.delete, settings.compact) == (True, False)
    assert settings.fsync
    assert not settings.log_append_time


def test_what_a_topic_sets_wins_over_its_node() -> None:
    node = {"log.retention.ms": "1000", "log.segment.bytes": "5000"}
    settings = topic_settings({"retention.ms": "7"}, node)
    assert (settings.retention_ms, settings.segment_bytes) == (7, 5000)


@pytest.mark.parametrize(
    ("node", "expected_ms"),
    [
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_node_level_name_supplies_the_default(
    node: dict[str, str], expected_ms: int
) -> None:
    assert topic_settings({}, node).retention_ms == expected_ms


def test_the_older_timestamp_bound_counts_where_the_newer_one_is_not_set() -> None:
    settings = topic_settings({
        "message.timestamp.difference.max.ms": "10", "message.timestamp.after.max.ms": "20",
    })  # fmt: skip
    assert (settings.timestamp_before_max_ms, settings.timestamp_after_max_ms) == (10, 20)


@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete", "delete, compact", ""])
def test_cleanup_policies_are_read_as_a_list(policy: str) -> None:
    settings = check_topic_configs({"cleanup.policy": policy})
    assert settings.compact == ("compact" in policy)
    assert settings.delete == ("delete" in policy)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("retention.ms", "soon", "long [-1..]"),
        ("retention.ms", "", "long [-1..]"),
        ("retention.ms", "1_000", "long [-1..]"),
        ("retention.ms", "٣", "long [-1..]"),
        ("retention.ms", "-2", "long [-1..]"),
        ("retention.ms", str(2**63), "long [-1..]"),
        ("segment.bytes", "1048575", "int [1048576..]"),
        ("segment.bytes", str(2**31), "int [1048576..]"),
        ("min.insync.replicas", "0", "int [1..]"),
        ("min.cleanable.dirty.ratio", "1.5", "double [0..1]"),
        ("min.cleanable.dirty.ratio", "nan", "double [0..1]"),
        ("min.cleanable.dirty.ratio", "inf", "double [0..1]"),
        ("compression.gzip.level", "0", "int [1..9] or -1"),
        ("compression.type", "zip", "uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("cleanup.policy", "compact,,delete", "a comma separated list of: compact, delete"),
        ("cleanup.policy", "keep", "a comma separated list of: compact, delete"),
        ("preallocate", "yes", "true, false"),
        ("flush.policy", "maybe", "fsync, written"),
    ],
)
def test_a_bad_value_is_refused_with_key_value_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_topic_configs({name: value})
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    text = str(refused.value)
    assert name in text
    assert repr(value) in text
    assert allowed in text


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match=r"did you mean 'retention\.ms'") as refused:
        check_topic_configs({"retention.msec": "1"})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_a_compaction_that_must_happen_before_it_may_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"min\.compaction\.lag\.ms \(10\)"):
        check_topic_configs({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_every_topic_setting_has_a_node_level_name_of_its_own() -> None:
    names = [synonym.name for key in TOPIC_KEYS.values() for synonym in key.synonyms]
    assert len(names) == len(set(names))
    assert all(key.synonyms for key in TOPIC_KEYS.values())
    assert set(names) <= set(NODE_KEYS)


def test_defaults_are_values_that_their_keys_accept() -> None:
    for key in [*TOPIC_KEYS.values(), *NODE_KEYS.values()]:
        if key.default is not None:
            key.parse(key.default)
        assert key.documentation


def test_a_fixed_node_setting_cannot_be_changed_while_the_node_runs() -> None:
    check_node_configs({"num.partitions": "3"}, dynamic=False)
    with pytest.raises(InvalidRequest, match="cannot be changed while the node runs"):
        check_node_configs({"num.partitions": "3"}, dynamic=True)


def test_node_settings_are_checked_by_name_and_value() -> None:
    check_node_configs({"log.retention.ms": "5", "log.cleanup.policy": "compact"}, dynamic=True)
    with pytest.raises(InvalidRequest, match=r"did you mean 'log\.retention\.ms'"):
        check_node_configs({"log.retention.mss": "5"}, dynamic=True)
    with pytest.raises(InvalidRequest, match=r"log\.segment\.bytes"):
        check_node_configs({"log.segment.bytes": "big"}, dynamic=True)


def test_a_segment_size_of_an_older_version_keeps_holding() -> None:
    before = {"segment.bytes": "100000"}
    after = {**before, "retention.ms": "1000"}
    assert topic_settings(before).segment_bytes == 100_000
    assert check_topic_configs(after, kept=before).segment_bytes == 100_000
    with pytest.raises(InvalidRequest):
        check_topic_configs(after, kept={"segment.bytes": "200000"})


def test_segments_below_the_minimum_are_made_by_the_internal_name_only() -> None:
    small = {"internal.segment.bytes": "14"}
    assert check_topic_configs(small).segment_bytes == 14
    assert "internal.segment.bytes" not in TOPIC_KEYS
    with pytest.raises(InvalidRequest):
        check_topic_configs({"internal.segment.bytes": "13"})


def test_no_topic_takes_batches_that_nodes_cannot_copy_to_each_other() -> None:
    """By any name that sets it; what an earlier release took holds as the upper bound."""
    largest = limits.BATCH_BYTES_MAX
    at_most, too_much = str(largest), str(largest + 1)
    assert check_topic_configs({"max.message.bytes": at_most}).max_message_bytes == largest
    with pytest.raises(InvalidRequest, match=r"max\.message\.bytes") as found:
        check_topic_configs({"max.message.bytes": too_much})
    assert at_most in found.value.remedy
    with pytest.raises(InvalidRequest, match=r"message\.max\.bytes") as found:
        check_node_configs({"message.max.bytes": too_much}, dynamic=True)
    assert at_most in found.value.remedy

    stored = {"max.message.bytes": str(100 * limits.MIB)}
    assert topic_settings(stored).max_message_bytes == largest
    assert topic_settings({}, {"message.max.bytes": too_much}).max_message_bytes == largest
    kept = check_topic_configs(stored | {"retention.ms": "1"}, kept=stored)
    assert kept.max_message_bytes == largest


def test_a_batch_the_state_of_its_stream_and_their_heads_fit_into_one_frame_between_nodes() -> None:
    state_bytes = 130 * limits.PRODUCERS_PER_STREAM_MAX
    assert limits.BATCH_BYTES_MAX + state_bytes + limits.MIB < limits.PEER_FRAME_BYTES_MAX
    assert limits.RAFT_ENTRY_BYTES_MAX + limits.MIB < limits.PEER_FRAME_BYTES_MAX
