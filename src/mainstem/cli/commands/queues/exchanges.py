"""``mainstem exchange`` and ``mainstem binding``: routing of messages, over the HTTP API."""

from typing import Annotated

import typer

from mainstem.cli.output.render import Output, show_confirmation, show_rows
from mainstem.cli.parameters.queues import Arguments, Namespace, arguments, queues_of
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Http,
    OutputForm,
    TimeoutSeconds,
)

exchange_app = typer.Typer(help="Exchanges: route messages to queues.", no_args_is_help=True)
binding_app = typer.Typer(help="Bindings: from exchanges to queues.", no_args_is_help=True)

Exchange = Annotated[str, typer.Argument(metavar="EXCHANGE", help="Name of the exchange.")]
Target = Annotated[str, typer.Argument(metavar="DESTINATION", help="A queue, or an exchange.")]
Key = Annotated[str, typer.Option("--key", "-k", help="The key, or a pattern of keys.")]
ToExchange = Annotated[bool, typer.Option("--to-exchange", help="The destination is an exchange.")]


@exchange_app.command("declare")
def declare(
    name: Exchange,
    kind: Annotated[
        str, typer.Option("--type", "-t", help="direct, fanout, topic, headers or mqtt.")
    ] = "direct",
    argument: Arguments = None,
    transient: Annotated[
        bool, typer.Option("--transient", help="Lost when the node restarts.")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Use an existing topic of that name.")
    ] = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Declare an exchange."""
    options = {
        "type": kind,
        "durable": not transient,
        "shared": shared,
        "arguments": arguments(argument),
    }
    made = queues_of(bootstrap, http, timeout, namespace).declare_exchange(name, options)
    show_confirmation(f"exchange {name} stores its messages in topic {made['topic']}", made, output)


@exchange_app.command("list")
def list_exchanges(
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List exchanges."""
    found = queues_of(bootstrap, http, timeout, namespace).exchanges()
    columns = ["name", "type", "durable", "topic", "bindings"]
    show_rows(found, output, columns=columns if output is Output.TABLE else ())


@exchange_app.command("delete")
def delete(
    name: Exchange,
    if_unused: Annotated[
        bool, typer.Option("--if-unused", help="Fail if it has bindings.")
    ] = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete an exchange; messages already routed stay in their queues."""
    queues_of(bootstrap, http, timeout, namespace).delete_exchange(name, if_unused=if_unused)
    show_confirmation(f"deleted {name}", {"deleted": name}, output)


@binding_app.command("list")
def list_bindings(
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List bindings."""
    found = queues_of(bootstrap, http, timeout, namespace).bindings()
    columns = ["source", "destination_type", "destination", "key", "arguments"]
    show_rows(found, output, columns=columns)


@binding_app.command("create")
def create(
    source: Exchange,
    destination: Target,
    key: Key = "",
    argument: Arguments = None,
    to_exchange: ToExchange = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Bind a queue, or another exchange, to an exchange."""
    binding = _binding(source, destination, key, to_exchange=to_exchange)
    options = binding | {"arguments": arguments(argument)}
    queues_of(bootstrap, http, timeout, namespace).bind(options)
    show_confirmation(f"bound {destination} to {source}", options, output)


@binding_app.command("delete")
def unbind(
    source: Exchange,
    destination: Target,
    key: Key = "",
    to_exchange: ToExchange = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete a binding; messages already routed stay in their queues."""
    binding = _binding(source, destination, key, to_exchange=to_exchange)
    queues_of(bootstrap, http, timeout, namespace).unbind(binding)
    show_confirmation(f"unbound {destination} from {source}", dict(binding), output)


def _binding(source: str, destination: str, key: str, *, to_exchange: bool) -> dict[str, str]:
    return {
        "source": source,
        "destination": destination,
        "destination_type": "exchange" if to_exchange else "queue",
        "key": key,
    }
