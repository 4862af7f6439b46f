"""Configuration: layers, origins, units, and refusals that help."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.coordination.groups.settings import GroupSettings
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.config.listener_spec import is_loopback
from mainstem.node.config.loader import LoadedConfig, load
from mainstem.node.config.setting_spec import leaves
from mainstem.node.config.settings import Config


def refused(**layers: object) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        load(**layers)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value


def test_defaults_alone_make_a_whole_configuration() -> None:
    loaded = load()
    assert loaded.config == Config()
    assert loaded.origins == {}
    assert loaded.config.kafka.port == 9092
    assert loaded.config.kafka.host == "127.0.0.1"


def test_each_layer_wins_over_the_ones_below_it(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[kafka]\nport = 1\nmax_connections = 2\nframe_bytes_max = 4096\n")
    loaded = load(
        file=file,
        environment={
            "MAINSTEM_KAFKA__MAX_CONNECTIONS": "3",
            "MAINSTEM_KAFKA__FRAME_BYTES_MAX": "8KiB",
        },
        flags={"kafka.frame_bytes_max": 16384, "http.port": None},
    )
    kafka = loaded.config.kafka
    assert (kafka.port, kafka.max_connections, kafka.frame_bytes_max) == (1, 3, 16384)
    assert loaded.origins == {
        "kafka.port": f"file {file}",
        "kafka.max_connections": "environment MAINSTEM_KAFKA__MAX_CONNECTIONS",
        "kafka.frame_bytes_max": "flag",
    }


def test_yaml_and_toml_say_the_same(tmp_path: Path) -> None:
    toml, yaml = tmp_path / "a.toml", tmp_path / "a.yaml"
    toml.write_text('preset = "local"\n[memory]\nlarge_frames_bytes_max = "64MiB"\n')
    yaml.write_text("preset: local\nmemory:\n  large_frames_bytes_max: 64MiB\n")
    assert load(file=toml).config == load(file=yaml).config
    assert load(file=yaml).config.memory.large_frames_bytes_max == 64 * 1024 * 1024


def test_an_empty_yaml_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "empty.yml"
    file.write_text("")
    assert load(file=file).config == Config()


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[node]\nid = 7\n")
    assert load(environment={"MAINSTEM_CONFIG": str(file)}).config.node.id == 7


def test_a_preset_changes_defaults_and_everything_else_wins_over_it() -> None:
    local = load(preset="local")
    assert local.config.groups.initial_rebalance_delay_ms == 0
    assert local.origins["groups.initial_rebalance_delay_ms"] == "preset local"
    flags: dict[str, object] = {"groups.initial_rebalance_delay_ms": 5}
    assert load(preset="local", flags=flags).config.groups.initial_rebalance_delay_ms == 5


def test_an_unknown_preset_is_refused_with_the_known_ones() -> None:
    assert "local, single" in str(refused(preset="cloud"))


def test_an_unknown_key_names_its_origin_and_the_nearest_key(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[topics]\nsegmnt_bytes = 1\n")
    error = refused(file=file)
    assert str(file) in error.cause
    assert error.subject == "topics.segmnt_bytes"
    assert "topics.segment_bytes" in error.remedy


def test_a_right_name_in_a_wrong_section_is_found() -> None:
    assert "log.storage_threads" in refused(flags={"x.storage_threads": 1}).remedy


def test_an_unknown_variable_is_refused_and_foreign_ones_are_not() -> None:
    error = refused(environment={"MAINSTEM_KAFKA__PROT": "1"})
    assert "MAINSTEM_KAFKA__PROT" in error.cause
    assert "kafka.port" in error.remedy
    assert load(environment={"MAINSTEM_REQUIRE": "java", "HOME": "/"}).config == Config()


def test_a_variable_with_one_underscore_too_few_is_refused() -> None:
    assert "MAINSTEM_KAFKA__PORT" in refused(environment={"MAINSTEM_KAFKA_PORT": "1"}).remedy


def test_a_key_outside_a_section_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("port = 1\n")
    assert "outside a section" in str(refused(file=file))


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("kafka.port", 70_000, "<= 65535"),
        ("kafka.port", "many", "expected `int`"),
        ("logs.format", "sometimes", "invalid enum value"),
        ("topics.flush_policy", "sometimes", "flush.policy"),
        ("topics.retention_ms", "-2", "retention.ms"),
        ("topics.auto_create", "perhaps", "expected `bool`"),
    ],
)
def test_a_bad_value_is_refused_with_its_origin(path: str, value: object, says: str) -> None:
    error = refused(flags={path: value})
    assert error.subject == path
    assert error.cause.startswith(f"flag sets {value!r}")
    assert says in error.cause


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("http.body_bytes_max", "1048576", 1 << 20),
        ("http.body_bytes_max", "512k", 512 << 10),
        ("http.body_bytes_max", "1.5 MiB", 3 << 19),
        ("groups.offsets_retention_ms", "7d", 7 * 86_400_000),
        ("groups.offsets_retention_ms", "1.5h", 5_400_000),
        ("groups.offsets_retention_ms", "2min", 120_000),
        ("shutdown.grace_ms", "250ms", 250),
        ("topics.auto_create", "false", False),
        ("node.rack", "", None),
        ("node.rack", "a", "a"),
    ],
)
def test_values_from_the_environment_are_understood(path: str, text: str, expected: object) -> None:
    section, name = path.split(".")
    variable = f"MAINSTEM_{section}__{name}".upper()
    config = load(environment={variable: text}).config
    assert getattr(getattr(config, section), name) == expected


@pytest.mark.parametrize("suffix", [".toml", ".yaml", ".ini"])
def test_a_file_that_cannot_be_understood_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"node{suffix}"
    file.write_text("[unclosed\n: {")
    assert refused(file=file).subject == str(file)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "cannot be read" in str(refused(file=tmp_path / "none.toml"))


@pytest.mark.parametrize("path", ["kafka.host", "http.host"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "broker.example.org"])
def test_an_address_that_others_reach_needs_the_insecure_flag(path: str, host: str) -> None:
    error = refused(flags={path: host})
    assert error.subject == path
    assert "--insecure" in error.remedy
    assert load(flags={path: host, "node.insecure": True}).config.node.insecure


def test_a_listener_that_is_off_may_have_any_address() -> None:
    assert not load(flags={"http.host": "0.0.0.0", "http.enabled": False}).config.http.enabled


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_is_recognised(host: str) -> None:
    assert is_loopback(host)


def test_bounds_that_cross_are_refused() -> None:
    flags = {"groups.session_timeout_max_ms": 5, "groups.session_timeout_min_ms": 6}
    assert refused(flags=flags).subject == "groups.session_timeout_min_ms"
    error = refused(flags={"topics.min_compaction_lag_ms": 6, "topics.max_compaction_lag_ms": 5})
    assert error.subject == "max.compaction.lag.ms"


def test_every_setting_says_when_to_change_it() -> None:
    settings = [setting.leaf for setting in load().settings()]
    assert len(settings) == len(leaves())
    assert not [leaf.path for leaf in settings if len(leaf.documentation) < 20]
    assert not [
        leaf.path for leaf in settings if not re.fullmatch(r"[a-z]+\.[a-z0-9_]+", leaf.path)
    ]


def test_settings_tell_value_default_and_origin() -> None:
    loaded: LoadedConfig = load(environment={"MAINSTEM_KAFKA__PORT": "0"})
    [port] = [setting for setting in loaded.settings() if setting.leaf.path == "kafka.port"]
    assert (port.value, port.leaf.default, port.leaf.allowed) == (0, 9092, "int")
    assert port.origin == "environment MAINSTEM_KAFKA__PORT"
    assert port.leaf.environment_name == "MAINSTEM_KAFKA__PORT"


@pytest.mark.parametrize(
    ("path", "value", "kafka_name", "expected"),
    [
        ("topics.retention_ms", "3d", "log.retention.ms", "259200000"),
        ("topics.retention_bytes", "9223372036854775807", "log.retention.bytes", str(2**63 - 1)),
        ("topics.retention_bytes", "-1", "log.retention.bytes", "-1"),
        ("topics.segment_bytes", "64MiB", "log.segment.bytes", "67108864"),
        ("topics.flush_policy", "written", "log.flush.policy", "written"),
        ("topics.cleanup_policy", ["compact", "delete"], "log.cleanup.policy", "compact,delete"),
        ("topics.preallocate", True, "log.preallocate", "true"),
        ("topics.min_cleanable_dirty_ratio", 0.25, "log.cleaner.min.cleanable.ratio", "0.25"),
        ("topics.auto_create", False, "auto.create.topics.enable", "false"),
        ("groups.offsets_retention_ms", "1d", "offsets.retention.minutes", "1440"),
        ("node.rack", "a", "broker.rack", "a"),
    ],
)
def test_kafka_tools_see_settings_under_kafkas_names(
    path: str, value: object, kafka_name: str, expected: str
) -> None:
    assert load(flags={path: value}).config.kafka_names()[kafka_name] == expected


def test_only_configured_topic_defaults_are_passed_on() -> None:
    assert load().config.topics.defaults == {}
    loaded = load(flags={"topics.retention_ms": 5})
    assert loaded.config.topics.defaults == {"retention.ms": "5"}
    shown = {setting.leaf.path: setting.value for setting in loaded.settings()}
    assert shown["topics.retention_ms"] == "5"
    assert shown["topics.segment_bytes"] == "1073741824"


def test_the_settings_of_groups_are_those_of_the_room_and_its_defaults() -> None:
    given_to_room = GroupSettings(**msgspec.structs.asdict(load().config.groups))
    assert given_to_room == GroupSettings()


@given(st.sampled_from(sorted(leaves())), st.text(max_size=20))
def test_any_text_is_either_understood_or_refused_as_configuration(path: str, text: str) -> None:
    answer: object
    try:
        answer = load(flags={path: text}).config
    except InvalidRequest as error:
        answer = error.code
    assert answer is ErrorCode.INVALID_CONFIG or isinstance(answer, Config)
