"""Tokens of an outside issuer: checked with its keys, which are looked up again when one is new.

Imported only by nodes that have such an issuer: the libraries behind it take their time to load.
"""

from mainstem.security.authentication.jwks_client import JwksKeySource
from mainstem.security.authentication.jwt_verifier import JwtVerifier, UnknownKey
from mainstem.security.authentication.sasl import LoginRefused
from mainstem.security.principals import Identity


class IssuerTokenVerifier:
    """Whom JSON web tokens stand for."""

    def __init__(self, verifier: JwtVerifier, keys: JwksKeySource) -> None:
        self._verifier = verifier
        self._keys = keys

    async def identity(self, token: str) -> Identity:
        """Whom the token stands for.

        Raises:
            LoginRefused: it does not hold, or the issuer's keys are not to be had.
        """
        for fresh in (False, True):
            keys = await self._keys.keys(fresh=fresh)
            if keys is None:
                continue
            try:
                return self._verifier.identity(token, keys)
            except UnknownKey:
                continue
        raise LoginRefused("a token signed with an unknown key")
