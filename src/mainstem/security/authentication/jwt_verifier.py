"""Verifies JSON web tokens: signature, issuer, audience and time.

Fails closed: a missing claim is an invalid one, an algorithm that is not on the list is refused
before any key is used, and ``none`` is never on it.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from msgspec import Struct

from mainstem.model.clock import Clock
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.authentication.sasl import refuse
from mainstem.security.principals import NAME_LENGTH_MAX, USER, Identity, Principal

# Asymmetric signatures only: with a shared secret, a verifier could also sign tokens.
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
TOKEN_BYTES_MAX: Final = 32 * 1024
GROUPS_MAX: Final = 200


class JwtSettings(Struct, frozen=True, kw_only=True):
    """Required claims of a token."""

    issuer: str
    audiences: tuple[str, ...]
    user_claim: str = "sub"
    groups_claim: str | None = None
    algorithms: tuple[str, ...] = ALGORITHMS
    leeway_ms: int = 30_000
    lifetime_ms_max: int = 86_400_000


class UnknownKey(Exception):
    """The token names a key that is not in the set; a newer set may have it."""


class JwtVerifier:
    """Checks tokens against a set of public keys."""

    def __init__(self, settings: JwtSettings, clock: Clock) -> None:
        unknown = set(settings.algorithms) - set(ALGORITHMS)
        if unknown or not (settings.issuer and settings.audiences and settings.algorithms):
            raise InvalidRequest(
                ErrorCode.INVALID_CONFIG,
                f"algorithms {', '.join(sorted(unknown))} are not supported"
                if unknown
                else "bearer tokens need an issuer and an audience to be checked against",
                subject="security.oauth",
            )
        self._settings = settings
        self._wall_ms = clock.wall_ms

    def identity(self, token: str, keys: KeySet) -> Identity:
        """The identity of a token.

        Raises:
            Refused: it is invalid.
            UnknownKey: it may be valid with newer keys.
        """
        if len(token) > TOKEN_BYTES_MAX or not token.isascii():
            refuse("not a JSON web token")
        claims = self._claims(token, keys)
        self._check_parties(claims)
        until_ms = self._check_times(claims)
        user = claims.get(self._settings.user_claim)
        if not isinstance(user, str) or not 0 < len(user) <= NAME_LENGTH_MAX or user == "*":
            refuse(f"no {self._settings.user_claim}")
        return Identity(
            Principal(USER, user),
            method="OAUTHBEARER",
            groups=self._groups(claims),
            until_ms=until_ms,
        )

    def _claims(self, token: str, keys: KeySet) -> Mapping[str, Any]:
        try:
            head = jws.extract_compact(token.encode()).headers()
            if head.get("alg") not in self._settings.algorithms:
                refuse(f"algorithm {str(head.get('alg'))[:20]!r}")
            if head.get("crit"):
                refuse("critical headers")
            kid = head.get("kid")
            known = {key.kid for key in keys.keys}
            if kid is not None and kid not in known:
                raise UnknownKey
            if kid is None and len(keys.keys) != 1:
                refuse("a token without a key id")
            found = jws.deserialize_compact(
                token.encode(), keys, algorithms=list(self._settings.algorithms)
            )
            claims = json.loads(found.payload)
        except (JoseError, ValueError, KeyError, TypeError, RecursionError) as error:
            refuse(f"an invalid token signature: {type(error).__name__}")
        if not isinstance(claims, dict):
            refuse("a token without claims")
        return claims

    def _check_parties(self, claims: Mapping[str, Any]) -> None:
        if claims.get("iss") != self._settings.issuer:
            refuse("another issuer")
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(each, str) and each in self._settings.audiences for each in named):
            refuse("another audience")

    def _check_times(self, claims: Mapping[str, Any]) -> int:
        now_ms, leeway = self._wall_ms(), self._settings.leeway_ms
        expires_ms = _milliseconds(claims, "exp")
        if expires_ms is None or now_ms >= expires_ms + leeway:
            refuse("expired, or without expiry")
        if expires_ms > now_ms + self._settings.lifetime_ms_max + leeway:
            refuse("an expiry too far away")
        for name in ("nbf", "iat"):
            begins_ms = _milliseconds(claims, name)
            if begins_ms is not None and now_ms < begins_ms - leeway:
                refuse("not yet valid")
        return expires_ms

    def _groups(self, claims: Mapping[str, Any]) -> tuple[str, ...]:
        if self._settings.groups_claim is None:
            return ()
        listed = claims.get(self._settings.groups_claim, [])
        if not isinstance(listed, list):
            return ()
        fit = [each for each in listed if isinstance(each, str) and each]
        return tuple(fit[:GROUPS_MAX])


def _milliseconds(claims: Mapping[str, Any], name: str) -> int | None:
    """A time claim; a value that is not a number makes the token invalid."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        refuse(f"an invalid {name} claim")
    return int(value * 1000)
