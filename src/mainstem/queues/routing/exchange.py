"""Exchanges and bindings: declarations, predeclared exchanges, reserved names.

An exchange is a topic with a matching rule. A binding routes from it to a queue or to another
exchange. Both are valid for a span of versions of their virtual host: ``[since, until)``; a message
is routed by the version that was valid when it was appended, also when repeated after a crash.
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
    """How keys and headers select bindings."""

    DIRECT = "direct"
    FANOUT = "fanout"
    TOPIC = "topic"
    HEADERS = "headers"
    # Keys are levels separated by `/`, patterns have the wildcards `+` and `#`.
    MQTT = "mqtt"


class Exchange(Struct, frozen=True, kw_only=True):
    """One declared exchange."""

    name: str
    kind: ExchangeKind
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None
    # Messages may have a delay before they reach any queue.
    delayed: bool = False


class Destination(NamedTuple):
    """The target of a binding."""

    is_queue: bool
    name: str


class Binding(Struct, frozen=True, omit_defaults=True):
    """A route from an exchange; equal declarations are one binding."""

    source: str
    destination: Destination
    key: str = ""
    arguments: dict[str, Any] = {}

    @property
    def identity(self) -> tuple[Any, ...]:
        """The fields by which two declarations are the same binding."""
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
    """The exchange that AMQP's ``exchange.declare`` specifies.

    Raises:
        InvalidRequest: the type is unknown, or an argument invalid.
    """
    check_name(name, "exchange")
    delayed = kind == DELAYED_TYPE
    if delayed:
        kind = arguments.get("x-delayed-type", "")
    alternate = arguments.get("alternate-exchange")
    if alternate is not None and not isinstance(alternate, str):
        raise refused("alternate-exchange", f"{alternate!r} is not a string")
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
    """Refuse a repeated declaration that differs, with the difference."""
    names = {"kind": "type", "alternate": "alternate-exchange", "delayed": "x-delayed-type"}
    for field in Exchange.__struct_fields__:
        ours, theirs = getattr(current, field), getattr(wanted, field)
        if ours != theirs:
            raise InvalidRequest(
                ErrorCode.DECLARATION_DIFFERS,
                f"inequivalent arg '{names.get(field, field)}': "
                f"received '{_value_text(theirs)}' but current is '{_value_text(ours)}'",
                subject=current.name,
                remedy="declare it with its current settings, or delete it first",
            )


def check_binding(binding: Binding, kind: ExchangeKind) -> None:
    """Refuse a binding that the exchange does not support."""
    check_name(binding.key, "binding")
    if DEFAULT_EXCHANGE in (binding.source, binding.destination.name):
        raise InvalidRequest(
            ErrorCode.RESERVED_NAME,
            "bindings of the default exchange cannot be changed",
            subject="default",
        )
    if kind is ExchangeKind.HEADERS:
        conditions(binding.arguments)


def _value_text(value: Any) -> str:
    return (
        "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
