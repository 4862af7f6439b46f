"""Verifies tokens of an external issuer with its keys, and fetches keys that are new.

Imported only by nodes that have such an issuer, because its libraries are slow to import.
"""

from mainstem.security.authentication.jwks_client import JwksKeySource
from mainstem.security.authentication.jwt_verifier import JwtVerifier, UnknownKey
from mainstem.security.authentication.sasl import LoginRefused
from mainstem.security.principals import Identity


class IssuerTokenVerifier:
    """Authenticates JSON web tokens."""

    def __init__(self, verifier: JwtVerifier, keys: JwksKeySource) -> None:
        self._verifier = verifier
        self._keys = keys

    async def identity(self, token: str) -> Identity:
        """The identity of a token.

        Raises:
            LoginRefused: it is invalid, or the issuer's keys are unavailable.
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
