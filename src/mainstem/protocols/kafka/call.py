"""One request on its way through the house, and the shape of what serves it.

A handler is a function ``(call, request) -> response``, or an ``async`` one. It receives and
returns the version-independent messages of ``wire.kafka.messages`` and puts refusals into the
response's own error fields. Each handler module exports ``SERVED: dict[int, Served]``.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from mainstem.broker.api import Broker


class Peer(Struct):
    """The connection a request came through."""

    address: str
    port: int
    dialled_host: str
    dialled_port: int
    client_id: str = ""
    software: str = ""


class Call(Struct):
    """What a handler may know about the request besides its body."""

    api_key: int
    version: int
    client_id: str
    peer: Peer
    broker: Broker


Handler = Callable[[Call, Any], Any | Awaitable[Any]]


class Served(Struct, frozen=True):
    """A handler and the versions it serves, both ends included."""

    handler: Handler
    min_version: int
    max_version: int
