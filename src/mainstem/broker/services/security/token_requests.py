"""Who may ask for tokens.

Everybody may make tokens for himself, unless he came with a token: what a token lets one do ends
with it.
"""

from mainstem.broker.api.security import Caller
from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.security.principals import ANONYMOUS


def need_own_login(caller: Caller, owner: str) -> None:
    """Refuse to make or change a token of ``owner`` for callers that may not ask for any."""
    if caller.identity.by_token:
        raise token_refused()
    if owner == str(ANONYMOUS):
        raise InvalidRequest(
            ErrorCode.TOKEN_REQUEST_REFUSED,
            "a token stands for somebody who has logged in",
            remedy="log in, or name the owner",
        )


def token_refused() -> InvalidRequest:
    """The refusal of a caller that came with a token."""
    return InvalidRequest(
        ErrorCode.TOKEN_REQUEST_REFUSED, "who came with a token cannot deal in tokens"
    )
