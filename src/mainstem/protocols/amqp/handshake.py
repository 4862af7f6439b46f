"""The first words of a connection: what the server says of itself, and what both agree on.

AMQP header ─▶ start ─▶ start-ok ─▶ (secure ─▶ secure-ok)* ─▶ tune ─▶ tune-ok ─▶ open ─▶ open-ok
"""

from typing import Any, Final

from mainstem.protocols.amqp.link import AmqpLimits
from mainstem.protocols.amqp.refusal import NOT_ALLOWED, ConnectionRefusal
from mainstem.wire.amqp.connection_methods import (
    ConnectionStart,
    ConnectionTune,
    ConnectionTuneOk,
)
from mainstem.wire.amqp.frames import FRAME_MIN_BYTES

# Before a client has logged in, no frame is larger than this.
LOGIN_FRAME_BYTES_MAX: Final = 16 * 1024
PRODUCT: Final = "Mainstem"
CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


def start(mechanisms: tuple[str, ...], cluster_name: str, version: str) -> ConnectionStart:
    """The server's first word."""
    properties: dict[str, Any] = {
        "product": PRODUCT,
        "version": version,
        "platform": "Python",
        "cluster_name": cluster_name,
        "capabilities": CAPABILITIES,
    }
    return ConnectionStart(
        server_properties=properties, mechanisms=" ".join(mechanisms).encode(), locales=b"en_US"
    )


def capabilities(client_properties: dict[str, Any]) -> frozenset[str]:
    """What the client says that it understands."""
    said = client_properties.get("capabilities")
    if not isinstance(said, dict):
        return frozenset()
    return frozenset(name for name, value in said.items() if value is True)


def tune(limits: AmqpLimits) -> ConnectionTune:
    """What the server would like."""
    return ConnectionTune(
        channel_max=limits.channels_max,
        frame_max=limits.frame_bytes_max,
        heartbeat=limits.heartbeat_s,
    )


def check_tuned(chosen: ConnectionTuneOk, limits: AmqpLimits) -> None:
    """Refuse what the server cannot do.

    Raises:
        ConnectionRefusal: a value is higher than offered, or too low to work with.
    """
    _check("channel_max", chosen.channel_max, 1, limits.channels_max)
    _check("frame_max", chosen.frame_max, FRAME_MIN_BYTES, limits.frame_bytes_max)


def _check(name: str, value: int, low: int, high: int) -> None:
    if value == 0 or value > high:
        told = "no limit" if value == 0 else str(value)
        raise ConnectionRefusal(
            NOT_ALLOWED, f"negotiated {name} = {told} is higher than the maximum allowed ({high})"
        )
    if value < low:
        raise ConnectionRefusal(
            NOT_ALLOWED, f"negotiated {name} = {value} is lower than the minimum allowed ({low})"
        )
