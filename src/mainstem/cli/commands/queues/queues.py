"""``mainstem queue``: declare, look into, fill, empty and move queues. Over the node's HTTP."""

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

app = typer.Typer(help="Queues: messages that are settled one by one.", no_args_is_help=True)
app.add_typer(dead_letters.app, name="dead-letters")

COLUMNS = ["name", "ready", "unsettled", "delayed", "consumers", "total_bytes"]
MESSAGE_COLUMNS = ["sequence", "key", "value", "exchange", "place", "attempts"]


@app.command("declare")
def declare(
    name: Queue,
    argument: Arguments = None,
    transient: Annotated[
        bool, typer.Option("--transient", help="The queue does not outlive its node.")
    ] = False,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="The queue goes with its last consumer.")
    ] = False,
    on_difference: Annotated[
        str, typer.Option(help="Where it is there and differs: fail, ignore or override.")
    ] = "fail",
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Let a queue be there."""
    options = {
        "durable": not transient,
        "auto_delete": auto_delete,
        "arguments": arguments(argument),
        "on_difference": on_difference,
    }
    queue = queues_of(bootstrap, http, timeout, namespace).declare(name, options)
    show_confirmation(f"queue {name} is there with {queue['ready']} messages", queue, output)


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
        typer.Argument(metavar="[MESSAGE...]", help="Messages; lines of the input without any."),
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
        show_confirmation("there was nothing to publish", {"stored": 0, "unrouted": 0}, output)
        return
    stored = queues.publish_to_exchange(name, sent) if exchange else queues.publish(name, sent)
    lost = f", {stored['unrouted']} of them reached no queue" if stored["unrouted"] else ""
    show_confirmation(f"{stored['stored']} messages are stored{lost}", stored, output)


@app.command("get")
def get(
    name: Queue,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="How many messages.")] = 1,
    keep: Annotated[
        bool, typer.Option("--keep", help="Only look: the messages stay in the queue.")
    ] = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Take messages out of a queue, or look at them."""
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
    """Drop all messages of a queue that nobody has in hand."""
    if not yes:
        typer.confirm(f"Drop all messages of {name}?", abort=True, err=True)
    dropped = queues_of(bootstrap, http, timeout, namespace).purge(name)
    show_confirmation(f"dropped {dropped} messages of {name}", {"messages": dropped}, output)


@app.command("delete")
def delete(
    name: Queue,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", help="Refuse where somebody consumes.")
    ] = False,
    if_empty: Annotated[
        bool, typer.Option("--if-empty", help="Refuse where messages are left.")
    ] = False,
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
