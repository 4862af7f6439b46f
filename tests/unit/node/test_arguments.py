"""The flags of a node."""

import pytest

from mainstem.model.errors import InvalidRequest
from mainstem.node.config.command_line import FLAGS, configuration, parser
from mainstem.node.config.setting_spec import leaves


def test_every_short_flag_is_a_setting() -> None:
    assert {path for path, _ in FLAGS.values()} <= set(leaves())


def test_flags_win_over_the_environment() -> None:
    loaded = configuration(
        ["--kafka-port", "0", "--set", "http.port=0", "--set=topics.retention_ms=1h"],
        {"MAINSTEM_KAFKA__PORT": "7", "MAINSTEM_HTTP__PORT": "8", "MAINSTEM_NODE__ID": "9"},
    )
    config = loaded.config
    assert (config.kafka.port, config.http.port, config.node.id) == (0, 0, 9)
    assert config.topics.defaults == {"retention.ms": "3600000"}
    assert loaded.origins["kafka.port"] == "flag"


def test_the_insecure_flag_opens_other_addresses() -> None:
    with pytest.raises(InvalidRequest, match="--insecure"):
        configuration(["--kafka-host", "0.0.0.0"], {})
    assert configuration(["--kafka-host", "0.0.0.0", "--insecure"], {}).config.node.insecure


def test_a_preset_of_the_command_line_wins_over_that_of_the_program() -> None:
    assert configuration([], {}, preset="local").preset == "local"
    assert configuration(["--preset", "single"], {}, preset="local").preset == "single"


def test_an_assignment_without_value_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"section\.name=value"):
        configuration(["--set", "kafka.port"], {})


def test_help_names_every_flag() -> None:
    text = parser().format_help()
    assert all(flag in text for flag in [*FLAGS, "--config", "--preset", "--set", "--insecure"])
