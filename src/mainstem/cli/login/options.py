"""The login options of every command that connects to a cluster.

They are added to each command that has ``--bootstrap``, in one place, so that no command can lack
them. Order of precedence: flags, the file of ``--command-config``, the profile of ``--profile``,
``MAINSTEM_*`` variables, the default profile.
"""

import functools
import getpass
import os
import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import ConnectionOptions, read_secret
from mainstem.cli.login.settings import MECHANISMS, LoginSettings, access_from, merged
from mainstem.cli.parameters.shared import BOOTSTRAP

_SECTION = "Login"
_VARIABLES = {
    "bootstrap": "MAINSTEM_BOOTSTRAP",
    "http": "MAINSTEM_HTTP",
    "user": "MAINSTEM_USER",
    "password": "MAINSTEM_PASSWORD",
    "password_file": "MAINSTEM_PASSWORD_FILE",
    "mechanism": "MAINSTEM_MECHANISM",
    "token": "MAINSTEM_TOKEN",
    "token_file": "MAINSTEM_TOKEN_FILE",
    "ca_file": "MAINSTEM_CA_FILE",
    "cert_file": "MAINSTEM_CERT_FILE",
    "key_file": "MAINSTEM_KEY_FILE",
    "key_password": "MAINSTEM_KEY_PASSWORD",
}
_TLS_VARIABLE = "MAINSTEM_TLS"
_PROFILE_VARIABLE = "MAINSTEM_PROFILE"
_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def _profile_names() -> list[str]:
    from mainstem.cli.login.profiles import profile_names, profiles_path

    return profile_names(profiles_path(os.environ))


def _options(
    user: Annotated[
        str | None,
        typer.Option("--user", "-u", help="Log in as this user; prompts for the password."),
    ] = None,
    password_file: Annotated[
        str | None,
        typer.Option(
            "--password-file", metavar="FILE", help="File whose first line is the password.",
        ),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            "--mechanism",
            help=f"{', '.join(MECHANISMS)}.  [default: SCRAM-SHA-512]",
            autocompletion=lambda: list(MECHANISMS),
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option("--token-file", metavar="FILE", help="Log in with the token in this file."),
    ] = None,
    by_token: Annotated[
        bool | None,
        typer.Option("--delegation-token", help="User and password are of a delegation token."),
    ] = None,
    tls: Annotated[
        bool | None, typer.Option("--tls/--no-tls", help="Use TLS; implied by the files below.")
    ] = None,
    ca_file: Annotated[
        str | None, typer.Option("--ca-file", metavar="FILE", help="Authorities to trust, PEM.")
    ] = None,
    cert_file: Annotated[
        str | None, typer.Option("--cert-file", metavar="FILE", help="Client certificate, PEM.")
    ] = None,
    key_file: Annotated[
        str | None, typer.Option("--key-file", metavar="FILE", help="Its key, unless beside it.")
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option("--command-config", metavar="FILE", help="Kafka's client properties."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            help="A profile of profiles.toml.",
            autocompletion=_profile_names,
        ),
    ] = None,
) -> None:  # fmt: skip
    """Only its parameters are used."""


def with_login(tree: Any) -> Any:
    """A tree of commands with the login options on each command that reaches a cluster."""
    for command in getattr(tree, "commands", {}).values():
        with_login(command)
    if any(param.name == BOOTSTRAP for param in tree.params):
        _extend(tree)
    return tree


@functools.cache
def _params() -> Any:
    pattern = typer.Typer(add_completion=False)
    pattern.command()(_options)
    return typer.main.get_command(pattern).params


def _extend(command: Any) -> None:
    added = _params()
    names = [param.name for param in added]
    taken = {word for param in command.params for word in param.opts}
    assert taken.isdisjoint(word for param in added for word in param.opts), command.name
    own, act = list(command.params), command.callback

    def callback(**given: Any) -> Any:
        given_options = {str(name): given.pop(name) for name in names}
        given[BOOTSTRAP] = resolved(given[BOOTSTRAP], given_options, os.environ)
        return act(**given)

    def format_options(context: Any, formatter: Any) -> None:
        show_options(context, formatter)
        with formatter.section(_SECTION):
            formatter.write_dl([param.get_help_record(context) for param in added])

    plain: Callable[[Any, Any], None] = command.format_options

    def show_options(context: Any, formatter: Any) -> None:
        command.params = own
        try:
            plain(context, formatter)
        finally:
            command.params = [*own, *added]

    command.params = [*own, *added]
    command.callback = callback
    command.format_options = format_options


def resolved(
    address: ConnectionOptions, given_options: Mapping[str, Any], environment: Mapping[str, str]
) -> ConnectionOptions:
    """The access that results from flags, files and variables.

    Raises:
        MainstemError: a file cannot be used, or they contradict each other.
    """
    rest = dict(given_options)
    command_config, profile = rest.pop("command_config"), rest.pop("profile")
    flags = LoginSettings(bootstrap=address.bootstrap if address.given else None, **rest)
    sources = [flags]
    if command_config is not None:
        from mainstem.cli.login.properties import read_properties

        sources.append(read_properties(command_config))
    named = profile or environment.get(_PROFILE_VARIABLE)
    if named:
        from mainstem.cli.login.profiles import profiles_path, read_profile

        sources.append(read_profile(profiles_path(environment), named))
    sources.append(settings_from_environment(environment))
    if not named and command_config is None:
        from mainstem.cli.login.profiles import profiles_path, read_default

        sources.append(read_default(profiles_path(environment)))
    return access_from(merged(sources), secret=_Asking())


def settings_from_environment(environment: Mapping[str, str]) -> LoginSettings:
    """The login settings in environment variables.

    Raises:
        UsageFailure: the value of a variable is invalid.
    """
    found: dict[str, Any] = {
        name: environment[variable]
        for name, variable in _VARIABLES.items()
        if environment.get(variable)
    }
    if text := environment.get(_TLS_VARIABLE):
        if text.lower() not in _BOOLEANS:
            raise UsageFailure(f"{text!r} is neither true nor false", subject=_TLS_VARIABLE)
        found["tls"] = _BOOLEANS[text.lower()]
    return LoginSettings(**found)


class _Asking:
    """Reads secrets from files and from the terminal."""

    def of_file(self, path: str) -> str:
        return read_secret(path)

    def of_user(self, user: str) -> str:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageFailure(
                "no password is given, and there is no terminal to prompt on",
                subject=user,
                remedy="--password-file FILE, or the variable MAINSTEM_PASSWORD",
            )
        return getpass.getpass(f"Password of {user}: ", stream=sys.stderr)
