"""Which source of a login wins, and what the sources come to."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import DEFAULT_ADDRESS, SaslCredentials
from mainstem.cli.login.settings import LoginSettings, access_from, merged


class Known:
    """Files and people that always answer with the same words."""

    def of_file(self, path: str) -> str:
        return f"in {path}"

    def of_user(self, user: str) -> str:
        return f"asked {user}"


def login(*sources: LoginSettings) -> SaslCredentials | None:
    return access_from(merged(sources), secret=Known()).login


def test_nothing_said_is_no_login_at_the_usual_address() -> None:
    access = access_from(LoginSettings(), secret=Known())
    assert (access.bootstrap, access.given, access.login, access.tls) == (
        DEFAULT_ADDRESS, False, None, None,
    )  # fmt: skip


@settings(deadline=None)  # a busy machine is slow
@given(
    st.lists(
        st.builds(LoginSettings, bootstrap=st.none() | st.text(min_size=1),
                  http=st.none() | st.text(min_size=1), tls=st.none() | st.booleans()),
        max_size=5,
    )
)  # fmt: skip
def test_the_first_source_that_says_something_wins(sources: list[LoginSettings]) -> None:
    whole = merged(sources)
    for name in ("bootstrap", "http", "tls"):
        said = [getattr(s, name) for s in sources if getattr(s, name) is not None]
        assert getattr(whole, name) == (said[0] if said else None)


def test_a_password_comes_from_the_source_that_names_the_same_user_or_none() -> None:
    flags = LoginSettings(user="alice")
    assert login(flags, LoginSettings(password="p")) == SaslCredentials(
        "SCRAM-SHA-512", "alice", "p"
    )
    assert login(flags, LoginSettings(user="alice", password="p")) == SaslCredentials(
        "SCRAM-SHA-512", "alice", "p"
    )
    other = LoginSettings(user="bob", password="bobs", mechanism="PLAIN", by_token=True)
    assert login(flags, other) == SaslCredentials("SCRAM-SHA-512", "alice", "asked alice")


def test_a_stronger_password_file_covers_a_weaker_password() -> None:
    found = login(LoginSettings(user="alice", password_file="f"), LoginSettings(password="weak"))
    assert found == SaslCredentials("SCRAM-SHA-512", "alice", "in f")


def test_a_token_leaves_users_behind_and_a_user_tokens() -> None:
    weak = LoginSettings(user="alice", password="p", mechanism="PLAIN")
    assert login(LoginSettings(token_file="t"), weak) == SaslCredentials(
        "OAUTHBEARER", token="in t", token_file="t"
    )
    assert login(
        LoginSettings(user="alice"), LoginSettings(token="t", mechanism="OAUTHBEARER")
    ) == SaslCredentials("SCRAM-SHA-512", "alice", "asked alice")


async def test_a_token_is_read_again_from_its_file_at_each_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    found = login(LoginSettings(token_file=str(file)))
    assert found is not None
    file.write_text("second\n")
    assert await found.fresh_token() == "second"
    given = login(LoginSettings(token="given"))
    assert given is not None
    assert await given.fresh_token() == "given"


def test_an_authority_given_twice_is_the_stronger_one() -> None:
    access = access_from(
        merged([LoginSettings(ca_file="mine"), LoginSettings(ca_pem="its")]), secret=Known()
    )
    assert access.tls is not None
    assert (access.tls.ca_file, access.tls.ca_pem) == ("mine", None)
    access = access_from(
        merged([LoginSettings(cert_file="c"), LoginSettings(chain_pem="its", key_password="k")]),
        secret=Known(),
    )
    assert access.tls is not None
    assert (access.tls.cert_file, access.tls.chain_pem, access.tls.key_password) == (
        "c", None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("wishes", "speaks"),
    [
        (LoginSettings(tls=True), True),
        (LoginSettings(ca_file="f"), True),
        (LoginSettings(cert_file="f"), True),
        (LoginSettings(ca_file="f", tls=False), False),
        (LoginSettings(user="a", password="p"), False),
    ],
)
def test_files_of_certificates_imply_tls(wishes: LoginSettings, speaks: bool) -> None:
    assert (access_from(wishes, secret=Known()).tls is not None) == speaks


@pytest.mark.parametrize(
    ("wishes", "cause"),
    [
        (LoginSettings(password_file="f"), "no user is given"),
        (LoginSettings(mechanism="PLAIN"), "no user is given"),
        (LoginSettings(by_token=True), "no user is given"),
        (LoginSettings(user="a", mechanism="GSSAPI"), "is not a mechanism"),
        (LoginSettings(user="a", mechanism="OAUTHBEARER"), "takes a token"),
        (LoginSettings(token="t", mechanism="PLAIN"), "takes no token"),
        (LoginSettings(key_file="k"), "a key without its certificate"),
    ],
)
def test_wishes_that_do_not_go_together_are_refused(wishes: LoginSettings, cause: str) -> None:
    with pytest.raises(UsageFailure, match=cause):
        access_from(wishes, secret=Known())


def test_secrets_are_not_shown() -> None:
    whole = LoginSettings(user="a", password="hidden", token="hidden", key_password="hidden")
    access = access_from(
        LoginSettings(user="a", password="hidden", chain_pem="hidden"), secret=Known()
    )
    assert "hidden" not in f"{whole!r} {access!r}"
