"""Checks who may create and change tokens.

Every user may create tokens for itself, unless it authenticated with a token: what a token permits
ends with the token.
"""

from mainstem.broker.api.security import Caller
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.principals import ANONYMOUS


def need_own_login(caller: Caller, owner: str) -> None:
    """Refuse callers that may not create or change a token of ``owner``."""
    if caller.identity.by_token:
        raise token_refused()
    if owner == str(ANONYMOUS):
        raise InvalidRequest(
            ErrorCode.TOKEN_REQUEST_REFUSED,
            "a token needs an owner that has logged in",
            remedy="log in, or name the owner",
        )


def token_refused() -> InvalidRequest:
    """The refusal of a caller that authenticated with a token."""
    return InvalidRequest(
        ErrorCode.TOKEN_REQUEST_REFUSED, "a login with a token cannot create or change tokens"
    )
