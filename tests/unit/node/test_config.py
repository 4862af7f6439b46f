"""Configuration: layers, origins, units, and refusals that help."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.config import Config
from mainstem.node.config_source import Loaded, is_loopback, leaves, load


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
    assert loaded.config.log.flush_policy == "fsync"


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
    toml.write_text('preset = "local"\n[log]\nsegment_bytes = "64MiB"\n')
    yaml.write_text("preset: local\nlog:\n  segment_bytes: 64MiB\n")
    assert load(file=toml).config == load(file=yaml).config
    assert load(file=yaml).config.log.segment_bytes == 64 * 1024 * 1024


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
    file.write_text("[log]\nsegmnt_bytes = 1\n")
    error = refused(file=file)
    assert str(file) in error.cause
    assert error.subject == "log.segmnt_bytes"
    assert "log.segment_bytes" in error.remedy


def test_a_right_name_in_a_wrong_section_is_found() -> None:
    assert "log.flush_policy" in refused(flags={"x.flush_policy": "fsync"}).remedy


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
        ("log.flush_policy", "sometimes", "invalid enum value"),
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
        ("log.segment_bytes", "1048576", 1 << 20),
        ("log.segment_bytes", "512k", 512 << 10),
        ("log.segment_bytes", "1.5 MiB", 3 << 19),
        ("topics.retention_bytes", "9223372036854775807", 2**63 - 1),
        ("topics.retention_bytes", "-1", -1),
        ("topics.retention_ms", "7d", 7 * 86_400_000),
        ("topics.retention_ms", "1.5h", 5_400_000),
        ("shutdown.grace_ms", "250ms", 250),
        ("topics.auto_create", "false", False),
        ("topics.min_cleanable_dirty_ratio", "0.25", 0.25),
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


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("groups.max_session_timeout_ms", "groups.min_session_timeout_ms"),
        ("log.preallocate_max_bytes", "log.preallocate_first_bytes"),
    ],
)
def test_bounds_that_cross_are_refused(smaller: str, larger: str) -> None:
    assert refused(flags={smaller: 5000, larger: 6000}).subject == larger


def test_every_setting_says_when_to_change_it() -> None:
    settings = list(load().settings())
    assert len(settings) == len(list(leaves()))
    assert not [setting.path for setting in settings if len(setting.documentation) < 20]
    assert not [s.path for s in settings if not re.fullmatch(r"[a-z]+\.[a-z_]+", s.path)]


def test_settings_tell_value_default_and_origin() -> None:
    loaded: Loaded = load(environment={"MAINSTEM_KAFKA__PORT": "0"})
    [port] = [setting for setting in loaded.settings() if setting.path == "kafka.port"]
    assert (port.value, port.default, port.type) == (0, 9092, "int")
    assert port.origin == "environment MAINSTEM_KAFKA__PORT"
    assert port.environment_name == "MAINSTEM_KAFKA__PORT"


def test_topic_defaults_follow_the_settings() -> None:
    flags: dict[str, object] = {"topics.retention_ms": 5, "log.flush_policy": "written"}
    defaults = load(flags=flags).config.topic_defaults()
    assert defaults["retention.ms"] == "5"
    assert defaults["flush.policy"] == "written"
    assert all(isinstance(value, str) for value in defaults.values())


@given(st.sampled_from([path for path, _ in leaves()]), st.text(max_size=20))
def test_any_text_is_either_understood_or_refused_as_configuration(path: str, text: str) -> None:
    section, name = path.split(".")
    answer: object
    try:
        answer = load(flags={path: text}).config
    except InvalidRequest as error:
        answer = error.code
    assert answer is ErrorCode.INVALID_CONFIG or hasattr(getattr(answer, section), name)
