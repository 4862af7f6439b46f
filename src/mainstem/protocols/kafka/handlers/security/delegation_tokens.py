"""Delegation tokens (KIP-48): Create-, Renew-, Expire- and DescribeDelegationToken."""

from mainstem.broker.api.security import IssuedToken
from mainstem.model.errors import MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.security.principals import parse_principal
from mainstem.wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from mainstem.wire.kafka.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from mainstem.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from mainstem.wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def create_delegation_token(
    call: Call, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create a token for the requester, or for the named owner."""
    owner = None
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    renewers = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
    asker = call.peer.identity.principal
    try:
        issued = await call.broker.security.delegation_tokens.issue(
            call.caller, owner=owner, renewers=renewers, lifetime_ms=request.max_lifetime_ms
        )
    except MainstemError as error:
        return CreateDelegationTokenResponse(
            error_code=kafka_code(error),
            principal_type=asker.kind,
            principal_name=asker.name,
            token_requester_principal_type=asker.kind,
            token_requester_principal_name=asker.name,
            issue_timestamp_ms=-1,
            expiry_timestamp_ms=-1,
            max_timestamp_ms=-1,
        )
    token = issued.token
    owner_kind, owner_name = parse_principal(token.owner)
    return CreateDelegationTokenResponse(
        principal_type=owner_kind,
        principal_name=owner_name,
        token_requester_principal_type=asker.kind,
        token_requester_principal_name=asker.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.max_ms,
        token_id=token.id,
        hmac=issued.hmac,
    )


async def renew_delegation_token(
    call: Call, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Extend the lifetime of a token."""
    try:
        until = await call.broker.security.delegation_tokens.renew(
            call.caller, bytes(request.hmac), request.renew_period_ms
        )
    except MainstemError as error:
        return RenewDelegationTokenResponse(error_code=kafka_code(error), expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=until)


async def expire_delegation_token(
    call: Call, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Expire a token, now or at a time."""
    try:
        until = await call.broker.security.delegation_tokens.expire(
            call.caller, bytes(request.hmac), request.expiry_time_period_ms
        )
    except MainstemError as error:
        return ExpireDelegationTokenResponse(error_code=kafka_code(error), expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=until)


def describe_delegation_token(
    call: Call, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """List the tokens of these owners, or of all, that the client may see."""
    owners = None
    if request.owners is not None:
        owners = [f"{each.principal_type}:{each.principal_name}" for each in request.owners]
    try:
        found = call.broker.security.delegation_tokens.visible_to(call.caller, owners)
    except MainstemError as error:
        return DescribeDelegationTokenResponse(error_code=kafka_code(error), tokens=[])
    return DescribeDelegationTokenResponse(tokens=[_described(issued) for issued in found])


def _described(issued: IssuedToken) -> DescribedDelegationToken:
    token = issued.token
    owner_kind, owner_name = parse_principal(token.owner)
    requester_kind, requester_name = parse_principal(token.requester)
    return DescribedDelegationToken(
        principal_type=owner_kind,
        principal_name=owner_name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester_name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=issued.hmac,
        renewers=[
            DescribedDelegationTokenRenewer(*parse_principal(renewer)) for renewer in token.renewers
        ],
    )


SERVED = {
    38: ApiHandler(create_delegation_token, 1, 3),
    39: ApiHandler(renew_delegation_token, 1, 2),
    40: ApiHandler(expire_delegation_token, 1, 2),
    41: ApiHandler(describe_delegation_token, 1, 3),
}
