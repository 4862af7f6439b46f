"""``mainstem queue dead-letters``: lists, shows and replays dead letters."""

from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.output.render import Output, show_confirmation, show_one, show_rows
from mainstem.cli.parameters.queues import Limit, Namespace, Queue, Where, pairs, queues_of
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Http,
    OutputForm,
    TimeoutSeconds,
)
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from mainstem.client.administration.rest_queues import Row

app = typer.Typer(help="Dead letters: list, show, replay.", no_args_is_help=True)

COLUMNS = ["sequence", "reason", "queue", "exchange", "key", "count", "died_ms"]


@app.command("list")
def list_letters(
    name: Queue,
    limit: Limit = None,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List the dead letters in a queue."""
    queues = queues_of(bootstrap, http, timeout, namespace)
    found = queues.browse(name, limit=limit or 100)
    show_rows([_row(each) for each in found if each["deaths"]], output, columns=COLUMNS)


@app.command("show")
def show(
    name: Queue,
    sequence: Annotated[int, typer.Argument(help="Its sequence number in the list.")],
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show one dead letter with its whole history."""
    queues = queues_of(bootstrap, http, timeout, namespace)
    found = queues.browse(name, start=sequence, limit=1)
    if not found or found[0]["sequence"] != sequence:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_DELIVERY, f"no message {sequence} in '{name}'", subject=name
        )
    show_one(found[0], output)


@app.command("replay")
def replay(
    name: Queue,
    where: Where = None,
    destination: Annotated[
        str | None,
        typer.Option(
            "--to", help="Destination queue; default: where each was first dead-lettered."
        ),
    ] = None,
    limit: Limit = None,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Send dead letters back to the queues where they were first dead-lettered."""
    moved = queues_of(bootstrap, http, timeout, namespace).move(
        name, destination=destination, where=pairs(where, "--where"), limit=limit
    )
    show_confirmation(f"replayed {moved} dead letters", {"messages": moved}, output)


def _row(letter: "Row") -> "Row":
    last = letter["deaths"][0]
    return {
        "sequence": letter["sequence"],
        "reason": last["reason"],
        "queue": last["queue"],
        "exchange": last["exchange"],
        "key": letter["key"],
        "count": last["count"],
        "died_ms": last["time_ms"],
    }
