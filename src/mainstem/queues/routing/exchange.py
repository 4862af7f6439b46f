"""Exchanges and bindings: what is declared, what is there from the start, what may not be.

An exchange is a topic with a matching rule. A binding leads from it to a queue or to another
exchange. Both hold for a span of versions of their namespace: ``[since, until)``; a message is
routed by the version that held when it was appended, also when that is done again after a crash.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct

from mainstem.model.errors import ErrorCode, InvalidRequest
from mainstem.queues.arguments import refused
from mainstem.queues.routing.header_table import conditions, frozen
from mainstem.queues.settings import check_name

DEFAULT_EXCHANGE = ""
RESERVED = "amq."
FOREVER = 2**63 - 1
DELAYED_TYPE = "x-delayed-message"


class ExchangeKind(StrEnum):
    """How keys and headers choose among bindings."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    # Keys are levels with `/` between them, patterns know `+` and `#`.
    MQTT = "mqtt"


class Exchange(Struct, frozen=True, kw_only=True):
    """One declaration."""

    name: str
    kind: ExchangeKind
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None
    # Messages may say how long they wait before they reach any queue.
    delayed: bool = False


class Destination(NamedTuple):
    """Where a binding leads."""

    is_queue: bool
    name: str


class Binding(Struct, frozen=True, omit_defaults=True):
    """One way from an exchange; equal declarations are one binding."""

    source: str
    destination: Destination
    key: str = ""
    arguments: dict[str, Any] = {}

    @property
    def identity(self) -> tuple[Any, ...]:
        """What makes two declarations the same binding."""
        return (self.source, self.destination, self.key, frozen(self.arguments))


PREDECLARED = (
    Exchange(name=DEFAULT_EXCHANGE, kind=ExchangeKind.DIRECT),
    Exchange(name="amq.direct", kind=ExchangeKind.DIRECT),
    Exchange(name="amq.fanout", kind=ExchangeKind.FANOUT),
    Exchange(name="amq.topic", kind=ExchangeKind.TOPIC),
    Exchange(name="amq.headers", kind=ExchangeKind.HEADERS),
    Exchange(name="amq.match", kind=ExchangeKind.HEADERS),
)
PREDECLARED_NAMES = frozenset(exchange.name for exchange in PREDECLARED)


def exchange_of(
    name: str,
    kind: str,
    arguments: Mapping[str, Any],
    *,
    durable: bool = True,
    auto_delete: bool = False,
    internal: bool = False,
) -> Exchange:
    """The exchange that AMQP's ``exchange.declare`` asks for.

    Raises:
        InvalidRequest: the type is unknown, an argument wrong.
    """
    check_name(name, "exchange")
    delayed = kind == DELAYED_TYPE
    if delayed:
        kind = arguments.get("x-delayed-type", "")
    alternate = arguments.get("alternate-exchange")
    if alternate is not None and not isinstance(alternate, str):
        raise refused("alternate-exchange", f"{alternate!r} is no text")
    try:
        rule = ExchangeKind(kind)
    except ValueError:
        what = f"unknown exchange type '{kind}', not one of {', '.join(ExchangeKind)}"
        raise InvalidRequest(ErrorCode.INVALID_ARGUMENT, what, subject=name) from None
    return Exchange(
        name=name,
        kind=rule,
        durable=durable,
        auto_delete=auto_delete,
        internal=internal,
        alternate=alternate,
        delayed=delayed,
    )


def check_same(current: Exchange, wanted: Exchange) -> None:
    """Refuse a repeated declaration that differs, and say in what."""
    names = {"kind": "type", "alternate": "alternate-exchange", "delayed": "x-delayed-type"}
    for field in Exchange.__struct_fields__:
        ours, theirs = getattr(current, field), getattr(wanted, field)
        if ours != theirs:
            raise InvalidRequest(
                ErrorCode.DECLARATION_DIFFERS,
                f"inequivalent arg '{names.get(field, field)}': "
                f"received '{_value_text(theirs)}' but current is '{_value_text(ours)}'",
                subject=current.name,
                remedy="declare it as it is, or delete it first",
            )


def check_binding(binding: Binding, kind: ExchangeKind) -> None:
    """Refuse a binding that the exchange could not follow."""
    check_name(binding.key, "binding")
    if DEFAULT_EXCHANGE in (binding.source, binding.destination.name):
        raise InvalidRequest(
            ErrorCode.RESERVED_NAME,
            "the default exchange has the bindings it has",
            subject="default",
        )
    if kind is ExchangeKind.HEADERS:
        conditions(binding.arguments)


def _value_text(value: Any) -> str:
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
