"""One SASL login on a connection: handshake and exchange of messages.

    lifetime_ms = await log_in(ask, settings, subject="host:port")

It is valid for the time that the node returns, 0 for as long as the connection, and is then
repeated on the same connection (KIP-368).
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from mainstem.client import errors
from mainstem.client.sasl import SaslSettings, exchange_for
from mainstem.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from mainstem.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

NONCE_BYTES: Final = 18
RENEWED_AFTER: Final = 0.8  # share of a login's lifetime; the rest is for a slow node
PAUSE_S_MIN: Final = 0.1

Ask = Callable[[msgspec.Struct], Awaitable[Any]]


async def log_in(ask: Ask, settings: SaslSettings, *, subject: str) -> int:
    """Authenticate; returns how long the login is valid, in ms.

    Raises:
        InvalidRequest: the node refuses the login, or cannot prove its identity.
        Unavailable: the connection ended.
    """
    if settings.token_source is not None:
        settings = msgspec.structs.replace(settings, token=await settings.token_source())
    exchange = exchange_for(settings, secrets.token_urlsafe(NONCE_BYTES))
    handshake = await ask(SaslHandshakeRequest(settings.mechanism))
    offered = ", ".join(handshake.mechanisms)
    errors.check(handshake.error_code, f"the node serves {offered}", subject=subject)
    message: bytes | None = exchange.first()
    lifetime_ms = 0
    while message is not None:
        answer = await ask(SaslAuthenticateRequest(message))
        errors.check(answer.error_code, answer.error_message, subject=subject)
        lifetime_ms = answer.session_lifetime_ms
        message = exchange.answer(bytes(answer.auth_bytes))
    return lifetime_ms


def renewal_pause_s(lifetime_ms: int) -> float:
    """How long to wait before a login with that lifetime is repeated."""
    return max(PAUSE_S_MIN, lifetime_ms * RENEWED_AFTER / 1000)
