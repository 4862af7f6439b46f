"""``mainstem exchange`` and ``mainstem binding``: where messages go. Over the node's HTTP."""

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

exchange_app = typer.Typer(help="Exchanges: topics that route.", no_args_is_help=True)
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
    transient: Annotated[bool, typer.Option("--transient", help="It goes with the node.")] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Take over a topic of that name that is there.")
    ] = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Let an exchange be there."""
    options = {
        "type": kind,
        "durable": not transient,
        "shared": shared,
        "arguments": arguments(argument),
    }
    made = queues_of(bootstrap, http, timeout, namespace).declare_exchange(name, options)
    show_confirmation(f"exchange {name} keeps its messages in topic {made['topic']}", made, output)


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
        bool, typer.Option("--if-unused", help="Refuse where it has bindings.")
    ] = False,
    namespace: Namespace = "/",
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete an exchange; what queues got from it stays theirs."""
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
    """Let messages of an exchange go to a queue, or to another exchange."""
    binding = _binding(source, destination, key, to_exchange=to_exchange)
    options = binding | {"arguments": arguments(argument)}
    queues_of(bootstrap, http, timeout, namespace).bind(options)
    show_confirmation(f"messages of {source} go to {destination}", options, output)


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
    """End a binding; what was routed stays."""
    binding = _binding(source, destination, key, to_exchange=to_exchange)
    queues_of(bootstrap, http, timeout, namespace).unbind(binding)
    show_confirmation(f"messages of {source} go to {destination} no longer", dict(binding), output)


def _binding(source: str, destination: str, key: str, *, to_exchange: bool) -> dict[str, str]:
    return {
        "source": source,
        "destination": destination,
        "destination_type": "exchange" if to_exchange else "queue",
        "key": key,
    }
