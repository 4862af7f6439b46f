"""SaslHandshake and SaslAuthenticate: authentication of a connection."""

from mainstem.model.errors import ErrorCode, MainstemError
from mainstem.protocols.kafka.call import ApiHandler, Call
from mainstem.protocols.kafka.errors import kafka_code
from mainstem.wire.kafka.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from mainstem.wire.kafka.messages.sasl_handshake import (
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

FRAMED_SINCE = 1  # messages of the mechanism are requests of their own (KIP-152)


def sasl_handshake(call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Choose a mechanism; the response lists the enabled ones.

    Version 0, after which SASL messages have no request header, is refused. It is advertised,
    because librdkafka 2.0 (kcat) assumes that a server without it has no SASL.
    """
    login = call.peer.login
    if login is None:
        code = kafka_code(ErrorCode.ILLEGAL_LOGIN_STATE)
        return SaslHandshakeResponse(error_code=code, mechanisms=[])
    if call.version < FRAMED_SINCE:
        code = kafka_code(ErrorCode.UNSUPPORTED_VERSION)
        return SaslHandshakeResponse(error_code=code, mechanisms=list(login.mechanisms))
    try:
        login.begin(request.mechanism)
    except MainstemError as error:
        return SaslHandshakeResponse(
            error_code=kafka_code(error), mechanisms=list(login.mechanisms)
        )
    return SaslHandshakeResponse(mechanisms=list(login.mechanisms))


async def sasl_authenticate(
    call: Call, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Process one message of the mechanism."""
    login = call.peer.login
    if login is None:
        return SaslAuthenticateResponse(
            error_code=kafka_code(ErrorCode.ILLEGAL_LOGIN_STATE),
            error_message="this listener does not require a login",
        )
    try:
        step = await login.respond(bytes(request.auth_bytes))
    except MainstemError as error:
        return SaslAuthenticateResponse(
            error_code=kafka_code(error), error_message=f"{error.cause}, {error.remedy}"
        )
    if step.identity is None:
        return SaslAuthenticateResponse(auth_bytes=step.data)
    rights = call.broker.security.rights(step.identity, call.peer.address)
    call.peer.authenticated(step.identity, rights)
    return SaslAuthenticateResponse(auth_bytes=step.data, session_lifetime_ms=login.lifetime_ms)


SERVED = {
    17: ApiHandler(sasl_handshake, 0, 1),
    36: ApiHandler(sasl_authenticate, 0, 2),
}
