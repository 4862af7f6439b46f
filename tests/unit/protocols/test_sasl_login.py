"""The SASL login that all protocols share, with a scripted check of credentials behind it."""

from typing import Any, cast

import pytest

from mainstem.model.errors import ErrorCode, InvalidRequest, MainstemError, Unavailable
from mainstem.protocols.sasl_login_service import LoginStep, SaslLogin
from mainstem.security.principals import USER, Identity, Principal

ALICE = Identity(Principal(USER, "alice"), method="PLAIN")
WRONG = InvalidRequest(ErrorCode.AUTHENTICATION_FAILED, "the login failed")
BUSY = Unavailable(ErrorCode.OVERLOADED, "too many passwords wait to be checked")

Answer = tuple[bytes, Identity | None] | MainstemError


class ScriptedSecurity:
    """Answers the messages of an exchange one after the other, and notes the logins."""

    def __init__(self, *answers: Answer) -> None:
        self.logins = self
        self._answers = list(answers)
        self.begun: list[tuple[str, str]] = []
        self.noted: list[tuple[Identity, str]] = []

    def begin(self, mechanism: str, address: str) -> "ScriptedSecurity":
        self.begun.append((mechanism, address))
        return self

    def succeeded(self, identity: Identity, address: str) -> Identity:
        self.noted.append((identity, address))
        return identity

    async def respond(self, _: bytes) -> tuple[bytes, Identity | None]:
        answer = self._answers.pop(0)
        if isinstance(answer, MainstemError):
            raise answer
        return answer


def login_with(security: ScriptedSecurity, certificate: Identity | None = None) -> SaslLogin:
    return SaslLogin(cast("Any", security), ("PLAIN", "SCRAM-SHA-256"), "10.0.0.1", certificate)


async def test_challenges_go_on_until_the_identity_is_proven() -> None:
    security = ScriptedSecurity((b"salt", None), (b"proof", ALICE))
    login = login_with(security)
    login.begin("SCRAM-SHA-256")
    assert await login.respond(b"first") == LoginStep(b"salt", None)
    assert await login.respond(b"final") == LoginStep(b"proof", ALICE)
    assert not login.is_in_progress
    assert security.begun == [("SCRAM-SHA-256", "10.0.0.1")]


def test_only_offered_mechanisms_begin_an_exchange() -> None:
    login = login_with(ScriptedSecurity())
    with pytest.raises(InvalidRequest, match="'OAUTHBEARER' is not supported") as caught:
        login.begin("OAUTHBEARER")
    assert caught.value.code is ErrorCode.UNSUPPORTED_MECHANISM
    assert not login.is_in_progress


async def test_a_message_without_a_mechanism_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        await login_with(ScriptedSecurity()).respond(b"")
    assert caught.value.code is ErrorCode.ILLEGAL_LOGIN_STATE


async def test_a_failed_exchange_is_over_and_cannot_be_continued() -> None:
    login = login_with(ScriptedSecurity(WRONG, (b"", ALICE)))
    login.begin("PLAIN")
    with pytest.raises(InvalidRequest, match="the login failed"):
        await login.respond(b"guess")
    with pytest.raises(InvalidRequest, match="no mechanism was chosen"):
        await login.respond(b"another guess")


async def test_a_check_that_is_not_possible_now_may_be_repeated() -> None:
    login = login_with(ScriptedSecurity(BUSY, (b"", ALICE)))
    login.begin("PLAIN")
    with pytest.raises(Unavailable):
        await login.respond(b"secret")
    assert (await login.respond(b"secret")).identity == ALICE


def test_a_login_by_certificate_is_noted_like_any_other() -> None:
    security = ScriptedSecurity()
    login = login_with(security, ALICE)
    assert login.by_certificate() == LoginStep(b"", ALICE)
    assert security.noted == [(ALICE, "10.0.0.1")]
