"""The start of a connection: server properties, and negotiation of limits.

AMQP header ─▶ start ─▶ start-ok ─▶ (secure ─▶ secure-ok)* ─▶ tune ─▶ tune-ok ─▶ open ─▶ open-ok
"""

from typing import Any, Final

from mainstem.protocols.amqp.channel_link import AmqpLimits
from mainstem.protocols.amqp.errors import NOT_ALLOWED, ConnectionRefusal
from mainstem.wire.amqp.connection_methods import (
    ConnectionStart,
    ConnectionTune,
    ConnectionTuneOk,
)
from mainstem.wire.amqp.frames import FRAME_MIN_BYTES

# Limits the size of frames before the login.
LOGIN_FRAME_BYTES_MAX: Final = 16 * 1024
PRODUCT: Final = "Mainstem"
# Clients that check the version compare it with RabbitMQ's, so the announced version is the release
# whose rules apply: NServiceBus refuses versions below 3.10, others warn. kombu checks it only for
# the product RabbitMQ; the Java client, Spring, pika and amqplib check the capabilities.
RABBITMQ_VERSION: Final = "3.13.7"
QOS_BY_SPECIFICATION: Final = frozenset({"py-amqp"})
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
    """The ``connection.start`` method, the first one that the server sends."""
    properties: dict[str, Any] = {
        "product": PRODUCT,
        "version": RABBITMQ_VERSION,
        "mainstem_version": version,
        "platform": "Python",
        "cluster_name": cluster_name,
        "capabilities": CAPABILITIES,
    }
    return ConnectionStart(
        server_properties=properties, mechanisms=" ".join(mechanisms).encode(), locales=b"en_US"
    )


def capabilities(client_properties: dict[str, Any]) -> frozenset[str]:
    """The capabilities that the client announced."""
    client_capabilities = client_properties.get("capabilities")
    if not isinstance(client_capabilities, dict):
        return frozenset()
    return frozenset(name for name, value in client_capabilities.items() if value is True)


def is_qos_for_channel(client_properties: dict[str, Any]) -> bool:
    """Whether ``basic.qos`` limits the whole channel for this client.

    In AMQP 0.9.1 it does; in RabbitMQ it limits each consumer that is started later.
    kombu asks RabbitMQ for the former with ``global=true``, and expects AMQP's rule from any other
    product: a Celery worker raises the prefetch of its running consumer that way.
    """
    return client_properties.get("product") in QOS_BY_SPECIFICATION


def tune(limits: AmqpLimits) -> ConnectionTune:
    """The ``connection.tune`` method with the server's limits."""
    return ConnectionTune(
        channel_max=limits.channels_max,
        frame_max=limits.frame_bytes_max,
        heartbeat=limits.heartbeat_s,
    )


def check_tuned(chosen: ConnectionTuneOk, limits: AmqpLimits) -> None:
    """Check the limits that the client chose.

    Raises:
        ConnectionRefusal: a value is higher than offered, or below the minimum.
    """
    _check("channel_max", chosen.channel_max, 1, limits.channels_max)
    _check("frame_max", chosen.frame_max, FRAME_MIN_BYTES, limits.frame_bytes_max)


def _check(name: str, value: int, low: int, high: int) -> None:
    if value == 0 or value > high:
        value_text = "no limit" if value == 0 else str(value)
        raise ConnectionRefusal(
            NOT_ALLOWED,
            f"negotiated {name} = {value_text} is higher than the maximum allowed ({high})",
        )
    if value < low:
        raise ConnectionRefusal(
            NOT_ALLOWED, f"negotiated {name} = {value} is lower than the minimum allowed ({low})"
        )
