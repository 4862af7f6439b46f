"""Listeners in their text form: ``SASL_SSL://0.0.0.0:9093``."""

from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.node.config.settings import Config

KINDS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ListenerSpec(Struct, frozen=True):
    """One Kafka listener: its kind, where it listens, and the address it advertises."""

    kind: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None

    @property
    def tls(self) -> bool:
        """Whether it uses TLS."""
        return self.kind.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether clients log in."""
        return self.kind.startswith("SASL")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def kafka_listeners(config: Config) -> tuple[ListenerSpec, ...]:
    """The configured Kafka listeners; at least one.

    Raises:
        InvalidRequest: one is malformed.
    """
    kafka = config.kafka
    if not kafka.listeners:
        return (ListenerSpec("PLAINTEXT", kafka.host, kafka.port),)
    if kafka.advertised_listeners and len(kafka.advertised_listeners) != len(kafka.listeners):
        raise _wrong("kafka.advertised_listeners", "there must be one address for each listener")
    specs = []
    for at, text in enumerate(kafka.listeners):
        kind, host, port = _parsed("kafka.listeners", text)
        advertised: tuple[str, int] | None = None
        if kafka.advertised_listeners:
            advertised_text = kafka.advertised_listeners[at]
            advertised_kind, advertised_host, advertised_port = _parsed(
                "kafka.advertised_listeners", advertised_text
            )
            if advertised_kind != kind or not advertised_port:
                raise _wrong(
                    "kafka.advertised_listeners", f"{advertised_text!r} does not fit {text!r}"
                )
            advertised = (advertised_host, advertised_port)
        specs.append(ListenerSpec(kind, host, port, advertised))
    return tuple(specs)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on ``host``."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _parsed(setting: str, text: str) -> tuple[str, str, int]:
    kind, _, address = text.partition("://")
    kind = kind.upper()
    try:
        parts = urlsplit(f"//{address}")
        port = parts.port
    except ValueError:
        raise _wrong(setting, f"{text!r} is not a listener") from None
    if kind not in KINDS or not parts.hostname or port is None or parts.path or "@" in text:
        raise _wrong(setting, f"{text!r} is not a listener")
    return kind, parts.hostname, port


def _wrong(setting: str, cause: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.INVALID_CONFIG,
        cause,
        subject=setting,
        remedy=f"write KIND://host:port with one of {', '.join(KINDS)}",
    )
