"""The login options are on every command that reaches a cluster, and only there."""

from typing import Any

import pytest
import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import ConnectionOptions
from mainstem.cli.login.options import resolved, settings_from_environment, with_login
from mainstem.cli.main import app

NOTHING: dict[str, Any] = dict.fromkeys(
    ["user", "password_file", "mechanism", "token_file", "by_token", "tls", "ca_file",
     "cert_file", "key_file", "command_config", "profile"]
)  # fmt: skip
WITHOUT = {"dev", "config show", "log backup", "log verify", "sim", "cert make", "cert show"}


def commands(tree: Any, path: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in tree.commands.items():
        full = f"{path} {name}".strip()
        if hasattr(command, "commands"):
            found |= commands(command, full)
        else:
            found[full] = command
    return found


def test_every_command_that_reaches_a_cluster_takes_a_login() -> None:
    tree = commands(with_login(typer.main.get_command(app)))
    logged_in = {
        name
        for name, command in tree.items()
        if {"user", "password_file", "tls", "profile"} <= {param.name for param in command.params}
    }
    known = {name for name in tree if not name.startswith("pipeline")}
    assert known - logged_in == WITHOUT


def test_no_option_takes_a_secret_from_the_command_line() -> None:
    for name, command in commands(with_login(typer.main.get_command(app))).items():
        words = {word for param in command.params for word in param.opts}
        assert words.isdisjoint({"--password", "--token", "--secret", "--new-password"}), name


def test_variables_log_in() -> None:
    environment = {
        "MAINSTEM_PROFILES": "/nowhere",
        "MAINSTEM_BOOTSTRAP": "b:1",
        "MAINSTEM_HTTP": "http://b:2",
        "MAINSTEM_USER": "u",
        "MAINSTEM_PASSWORD": "p",
        "MAINSTEM_TLS": "true",
    }
    access = resolved(ConnectionOptions(), NOTHING, environment)
    assert (access.bootstrap, access.http) == ("b:1", "http://b:2")
    assert access.login is not None
    assert (access.login.user, access.login.password) == ("u", "p")
    assert access.tls is not None
    named = resolved(ConnectionOptions.parse("c:3"), NOTHING, environment)
    assert named.bootstrap == "c:3"


def test_a_variable_that_is_empty_says_nothing() -> None:
    assert settings_from_environment(
        {"MAINSTEM_USER": "", "MAINSTEM_TLS": ""}
    ) == settings_from_environment({})


def test_a_variable_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageFailure, match="neither true nor false"):
        settings_from_environment({"MAINSTEM_TLS": "perhaps"})
