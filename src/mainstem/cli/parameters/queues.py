"""Options that commands about queues, exchanges and bindings share, and their parsers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mainstem.cli.errors import UsageFailure

if TYPE_CHECKING:
    from mainstem.cli.login.access import ConnectionOptions
    from mainstem.client.administration.rest_queues import RestQueues

Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="The namespace: AMQP's virtual host.")
]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
Arguments = Annotated[
    list[str] | None,
    typer.Option(
        "--argument", "-a", metavar="NAME=VALUE", help="An argument, such as x-message-ttl=60000."
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="NAME=PATTERN",
        help="Only messages that match: reason, queue, exchange, key, attempts, header.<name>.",
    ),
]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many messages.")]


def queues_of(
    bootstrap: "ConnectionOptions", http: str | None, timeout_s: float, namespace: str
) -> "RestQueues":
    """The queues of a namespace, over the HTTP API."""
    from mainstem.client.administration.rest_queues import RestQueues

    return RestQueues(bootstrap.rest(http, timeout_s), namespace)


def pairs(given: Sequence[str] | None, option: str) -> dict[str, str]:
    """Parses ``name=value`` words."""
    found: dict[str, str] = {}
    for word in given or ():
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise UsageFailure(f"{word!r} is not of the form NAME=VALUE", subject=option)
        found[name] = value
    return found


def arguments(given: Sequence[str] | None) -> dict[str, Any]:
    """Parses arguments for AMQP: numbers and booleans are converted from text."""
    return {name: _typed(value) for name, value in pairs(given, "--argument").items()}


def _typed(value: str) -> object:
    if value in ("true", "false"):
        return value == "true"
    digits = value.removeprefix("-")
    return int(value) if digits.isascii() and digits.isdigit() else value
