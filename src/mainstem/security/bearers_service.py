"""Tokens of an outside issuer: checked with its keys, which are looked up again when one is new.

Imported only by nodes that have such an issuer: the libraries behind it take their time to load.
"""

from mainstem.security.jwks_client import KeySource
from mainstem.security.jwt_tokens import JwtVerifier, UnknownKey
from mainstem.security.principals import Identity
from mainstem.security.sasl import Refused


class IssuerTokens:
    """Whom JSON web tokens stand for."""

    def __init__(self, verifier: JwtVerifier, keys: KeySource) -> None:
        self._verifier = verifier
        self._keys = keys

    async def identity(self, token: str) -> Identity:
        """Whom the token stands for.

        Raises:
            Refused: it does not hold, or the issuer's keys are not to be had.
        """
        for fresh in (False, True):
            keys = await self._keys.keys(fresh=fresh)
            if keys is None:
                continue
            try:
                return self._verifier.identity(token, keys)
            except UnknownKey:
                continue
        raise Refused("a token signed with an unknown key")
