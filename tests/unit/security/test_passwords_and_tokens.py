"""Stored passwords, remembered ones, API tokens, delegation tokens."""

import pytest
from tests.kit.clock import ManualClock

from mainstem.model.errors import InvalidRequest
from mainstem.security.authentication import passwords, tokens
from mainstem.security.authentication.passwords import Credentials, PasswordCache, make_credentials
from mainstem.security.authentication.tokens import ApiToken, DelegationToken

SALTS = [b"a" * 24, b"b" * 24]


def test_a_password_is_kept_in_forms_that_do_not_hold_it() -> None:
    made = make_credentials("correct horse", SALTS)
    assert made.argon2 is not None
    assert made.argon2.startswith("$argon2id$")
    assert "horse" not in repr(made)
    assert passwords.is_right(made, "correct horse")
    assert not passwords.is_right(made, "Correct horse")


def test_a_user_with_scram_keys_only_has_a_password_all_the_same() -> None:
    keys_only = Credentials(scram=make_credentials("secret", SALTS).scram)
    assert passwords.is_right(keys_only, "secret")
    assert not passwords.is_right(keys_only, "secrets")


@pytest.mark.parametrize("nothing", [None, Credentials()])
def test_who_has_no_password_cannot_log_in_with_any(nothing: Credentials | None) -> None:
    assert not passwords.is_right(nothing, "")
    assert not passwords.is_right(nothing, "the password of unknown users")


def test_passwords_have_bounds() -> None:
    for password in ("", "x" * 1_025):
        with pytest.raises(InvalidRequest):
            make_credentials(password, SALTS)
    assert not passwords.is_right(make_credentials("p", SALTS), "x" * 1_000_000)


def test_a_damaged_hash_lets_nobody_in() -> None:
    assert not passwords.is_right(Credentials(argon2="$argon2id$nonsense"), "p")


def test_a_right_password_is_remembered_for_a_while_and_only_for_its_user() -> None:
    clock = ManualClock()
    right = PasswordCache(clock, b"key")
    right.remember("alice", "p")
    assert right.knows("alice", "p")
    assert not right.knows("alice", "q")
    assert not right.knows("bob", "p")
    right.remember("a:", "b")
    assert not right.knows("a", ":b"), "where a name ends is part of it"
    clock.now_s += 301
    assert not right.knows("alice", "p")
    right.remember("alice", "p")
    right.forget_all()
    assert not right.knows("alice", "p")


def api_token(**rest: object) -> tuple[ApiToken, str]:
    token_id, text, digest = tokens.make_api_token(bytes(range(41)))
    return ApiToken(token_id, "User:a", digest, "ci", 0, **rest), text  # type: ignore[arg-type]


def test_an_api_token_is_checked_by_its_hash() -> None:
    kept, text = api_token()
    parts = tokens.split_api_token(text)
    assert parts is not None
    assert parts[0] == kept.id
    assert parts[1].encode() not in kept.digest
    assert tokens.is_right(kept, parts[1], now_ms=0)
    assert not tokens.is_right(kept, parts[1][:-1], now_ms=0)


def test_an_api_token_ends_with_its_time() -> None:
    kept, text = api_token(expires_ms=1000)
    _, secret = tokens.split_api_token(text) or ("", "")
    assert tokens.is_right(kept, secret, now_ms=999)
    assert not tokens.is_right(kept, secret, now_ms=1000)


@pytest.mark.parametrize("text", ["", "mst_", "mst_a", "mst__b", "mst_a_", "eyJhbGciOi.x.y"])
def test_other_texts_are_no_api_tokens(text: str) -> None:
    assert tokens.split_api_token(text) is None


def test_delegation_tokens_end_at_the_earlier_of_two_times() -> None:
    token = DelegationToken("t", "User:a", "User:a", ("User:r",), 0, expires_ms=10, max_ms=20)
    assert token.is_valid(9)
    assert not token.is_valid(10)
    assert token.may_be_changed_by("User:a")
    assert token.may_be_changed_by("User:r")
    assert not token.may_be_changed_by("User:b")


def test_the_hmac_of_a_token_depends_on_secret_and_id() -> None:
    made = {tokens.delegation_hmac(s, i) for s in (b"x", b"y") for i in ("1", "2")}
    assert len(made) == 4


def test_a_lifetime_is_what_was_asked_for_within_bounds() -> None:
    assert tokens.lifetime_ms(-1) == tokens.LIFETIME_MS_MAX
    assert tokens.lifetime_ms(5) == 5
    assert tokens.lifetime_ms(2**60) == tokens.LIFETIME_MS_MAX
    with pytest.raises(InvalidRequest):
        tokens.lifetime_ms(-2)
