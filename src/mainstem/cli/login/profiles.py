"""Profiles: logins written down once, in a file of the user's own.

    default = "local"                       # used if no other is selected

    [profiles.prod]
    bootstrap = "kafka.example.com:9093"
    http = "https://kafka.example.com:8080"
    user = "alice"
    password_file = "~/.secrets/alice"
    ca_file = "~/certs/ca.pem"

A file that holds a password or a token itself must not be readable by others.
"""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.settings import LoginSettings
from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError

FILE_VARIABLE = "MAINSTEM_PROFILES"
_TEXTS = frozenset({"bootstrap", "http", "user", "password", "password_file", "mechanism", "token",
                    "token_file", "ca_file", "cert_file", "key_file", "key_password"})  # fmt: skip
_FLAGS = {"tls": "tls", "delegation_token": "by_token"}
_PATHS = frozenset({"password_file", "token_file", "ca_file", "cert_file", "key_file"})
_SECRETS = frozenset({"password", "token", "key_password"})


def profiles_path(environment: Mapping[str, str]) -> Path:
    """The path of the file of profiles."""
    if named := environment.get(FILE_VARIABLE):
        return Path(named).expanduser()
    folder = environment.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "mainstem" / "profiles.toml"


def read_profile(path: Path, name: str) -> LoginSettings:
    """The login settings of a named profile.

    Raises:
        UsageFailure: the profile does not exist.
        InvalidRequest: the file is invalid.
    """
    document = _document(path)
    profiles = document.get("profiles", {})
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise UsageFailure(
            "the profile does not exist", subject=name, remedy=f"{path} has: {known}"
        )
    return _login_settings(path, name, profiles[name])


def read_default(path: Path) -> LoginSettings:
    """The login settings of the default profile, if there is one."""
    if not path.exists():
        return LoginSettings()
    name = _document(path).get("default")
    if name is None:
        return LoginSettings()
    return read_profile(path, str(name))


def profile_names(path: Path) -> list[str]:
    """The names of the profiles, for shell completion; none if the file cannot be read."""
    try:
        return sorted(_document(path).get("profiles", {}))
    except MainstemError:
        return []


def _document(path: Path) -> dict[str, dict[str, dict[str, object]]]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise UsageFailure("the file of profiles does not exist", subject=str(path)) from None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise _invalid(str(path), f"the file cannot be read: {error}") from error


def _login_settings(path: Path, profile: str, settings: dict[str, object]) -> LoginSettings:
    found: dict[str, object] = {}
    for name, value in settings.items():
        subject = f"profiles.{profile}.{name}"
        if name in _FLAGS and isinstance(value, bool):
            found[_FLAGS[name]] = value
        elif name in _TEXTS and isinstance(value, str):
            found[name] = os.fspath(Path(value).expanduser()) if name in _PATHS else value
        elif name in _TEXTS or name in _FLAGS:
            raise _invalid(subject, f"{value!r} is not {'text' if name in _TEXTS else 'a boolean'}")
        else:
            near = difflib.get_close_matches(name, [*_TEXTS, *_FLAGS], 1)
            raise _invalid(subject, "unknown", remedy=f"did you mean {near[0]}?" if near else "")
    if _SECRETS & found.keys() and path.stat().st_mode & 0o077:
        raise _invalid(
            str(path),
            "it contains a secret and is readable by other users",
            remedy=f"chmod 600 {path}",
        )
    return LoginSettings(**found)  # type: ignore[arg-type]


def _invalid(subject: str, cause: str, *, remedy: str = "") -> InvalidRequest:
    return InvalidRequest(ErrorCode.INVALID_CONFIG, cause, subject=subject, remedy=remedy)
