"""``mainstem queue``: declare, inspect, fill, purge and move queues, over the HTTP API."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.commands.queues import dead_letters
from mainstem.cli.output.render import Output, show_confirmation, show_one, show_rows
from mainstem.cli.parameters.queues import (
    Arguments,
    Limit,
    Namespace,
    Queue,
    Where,
    arguments,
    pairs,
    queues_of,
)
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Http,
    OutputForm,
    TimeoutSeconds,
    Yes,
)

if TYPE_CHECKING:
    from mainstem.client.administration.rest_queues import Row

app = typer.Typer(help="Queues: each message is delivered to one consumer.", no_args_is_help=True)
app.add_typer(dead_letters.app, name="dead-letters")

COLUMNS = ["name", "ready", "unsettled", "delayed", "consumers", "total_bytes"]
MESSAGE_COLUMNS = ["sequence", "key", "value", "exchange", "place", "attempts"]


@app.command("declare")
def declare(
    name: Queue,
    argument: Arguments = None,
    transient: Annotated[
        bool, typer.Option("--transient", help="The queue is lost when its node restarts.")
    ] = False,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="Delete the queue with its last consumer.")
    ] = False,
    on_difference: Annotated[
        str, typer.Option(help="If it exists with other settings: fail, ignore or override.")
    ] = "fail",
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Declare a queue."""
    options = {
        "durable": not transient,
        "auto_delete": auto_delete,
        "arguments": arguments(argument),
        "on_difference": on_difference,
    }
    queue = queues_of(bootstrap, http, timeout, namespace).declare(name, options)
    show_confirmation(f"declared {name} with {queue['ready']} messages", queue, output)


@app.command("list")
def list_queues(
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List queues."""
    found = queues_of(bootstrap, http, timeout, namespace).queues()
    show_rows(found, output, columns=COLUMNS if output is Output.TABLE else ())


@app.command("describe")
def describe(
    name: Queue,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Describe a queue."""
    show_one(queues_of(bootstrap, http, timeout, namespace).describe(name), output)


@app.command("publish")
def publish(
    name: Queue,
    message: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MESSAGE...]", help="Messages; default: each line of the input."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header.")
    ] = None,
    exchange: Annotated[
        bool, typer.Option("--exchange", help="QUEUE names an exchange instead.")
    ] = False,
    key: Annotated[str, typer.Option("--key", "-k", help="Routing key, for an exchange.")] = "",
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Publish messages to a queue, or to an exchange."""
    bodies = message or [line.rstrip("\n") for line in sys.stdin]
    headers = pairs(header, "--header")
    sent: list[Row] = [{"value": body, "headers": headers, "key": key} for body in bodies]
    queues = queues_of(bootstrap, http, timeout, namespace)
    if not sent:
        show_confirmation("nothing to publish", {"stored": 0, "unrouted": 0}, output)
        return
    stored = queues.publish_to_exchange(name, sent) if exchange else queues.publish(name, sent)
    lost = (
        f", {stored['unrouted']} of them were not routed to a queue" if stored["unrouted"] else ""
    )
    show_confirmation(f"{stored['stored']} messages are stored{lost}", stored, output)


@app.command("get")
def get(
    name: Queue,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="How many messages.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Only show: the messages stay in the queue.")
    ] = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Get messages from a queue and remove them, or only show them."""
    queues = queues_of(bootstrap, http, timeout, namespace)
    found = queues.browse(name, limit=count) if keep else queues.take(name, count)
    show_rows(found, output, columns=MESSAGE_COLUMNS if output is Output.TABLE else ())


@app.command("purge")
def purge(
    name: Queue,
    yes: Yes = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Drop all messages of a queue that are not being delivered."""
    if not yes:
        typer.confirm(f"Drop all messages of {name}?", abort=True, err=True)
    dropped = queues_of(bootstrap, http, timeout, namespace).purge(name)
    show_confirmation(f"dropped {dropped} messages of {name}", {"messages": dropped}, output)


@app.command("delete")
def delete(
    name: Queue,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", help="Fail if it has consumers.")
    ] = False,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Fail if it has messages.")] = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete a queue and its messages."""
    queues = queues_of(bootstrap, http, timeout, namespace)
    messages = queues.delete(name, if_unused=if_unused, if_empty=if_empty)
    row = {"deleted": name, "messages": messages}
    show_confirmation(f"deleted {name} with {messages} messages", row, output)


@app.command("move")
def move(
    name: Queue,
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="Another queue.")],
    where: Where = None,
    limit: Limit = None,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Move ready messages to another queue."""
    moved = queues_of(bootstrap, http, timeout, namespace).move(
        name, destination=destination, where=pairs(where, "--where"), limit=limit
    )
    show_confirmation(f"moved {moved} messages to {destination}", {"messages": moved}, output)
