"""Logins written down in a file."""

from pathlib import Path

import pytest

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.profiles import profile_names, profiles_path, read_default, read_profile
from mainstem.cli.login.settings import LoginSettings
from mainstem.model.errors import InvalidRequest


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "profiles.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_profile_says_all_that_flags_can_say(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """[profiles.all]
bootstrap = "b:1"
http = "https://b:2"
user = "u"
password = "p"
mechanism = "PLAIN"
tls = true
delegation_token = true
ca_file = "/ca"
cert_file = "/cert"
key_file = "/key"
""",
    )
    assert read_profile(path, "all") == LoginSettings(
        bootstrap="b:1", http="https://b:2", user="u", password="p", mechanism="PLAIN", tls=True,
        by_token=True, ca_file="/ca", cert_file="/cert", key_file="/key",
    )  # fmt: skip


def test_paths_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    path = written(tmp_path, '[profiles.p]\npassword_file = "~/secret"\n', 0o644)
    assert read_profile(path, "p").password_file == "/home/me/secret"


def test_the_default_is_used_only_where_there_is_one(tmp_path: Path) -> None:
    assert read_default(tmp_path / "none.toml") == LoginSettings()
    assert read_default(written(tmp_path, '[profiles.p]\nuser = "u"\n')) == LoginSettings()
    path = written(tmp_path, 'default = "p"\n[profiles.p]\nuser = "u"\n')
    assert read_default(path) == LoginSettings(user="u")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('usr = "u"', "did you mean user"),
        ("user = 5", "not text"),
        ('tls = "yes"', "not a boolean"),
    ],
)
def test_what_a_profile_cannot_say_is_an_error(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read_profile(written(tmp_path, f"[profiles.p]\n{text}\n"), "p")
    assert told in str(refused.value)
    assert refused.value.subject.startswith("profiles.p.")


@pytest.mark.parametrize("secret", ['password = "p"', 'token = "t"', 'key_password = "k"'])
def test_secrets_in_a_file_that_others_read_are_refused(tmp_path: Path, secret: str) -> None:
    text = f'[profiles.p]\nuser = "u"\n{secret}\n'
    for mode in (0o640, 0o604, 0o620):
        with pytest.raises(InvalidRequest, match="readable by other users"):
            read_profile(written(tmp_path, text, mode), "p")
    read_profile(written(tmp_path, text), "p")


def test_a_file_that_is_no_toml_or_a_missing_profile_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_profile(written(tmp_path, "= nothing"), "p")
    with pytest.raises(UsageFailure, match="the profile does not exist"):
        read_profile(written(tmp_path, "[profiles.q]\n"), "p")
    with pytest.raises(UsageFailure, match="file of profiles does not exist"):
        read_profile(tmp_path / "none.toml", "p")


def test_a_shell_is_offered_the_names_there_are(tmp_path: Path) -> None:
    assert profile_names(tmp_path / "none.toml") == []
    assert profile_names(written(tmp_path, "[profiles.b]\n[profiles.a]\n")) == ["a", "b"]


def test_the_file_is_where_the_environment_says() -> None:
    assert profiles_path({"MAINSTEM_PROFILES": "/p.toml"}) == Path("/p.toml")
    assert profiles_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/mainstem/profiles.toml")
