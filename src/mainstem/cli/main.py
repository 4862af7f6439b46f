"""Entry point: the tree of commands and the one place that turns errors into exit codes."""

import functools
import itertools
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from mainstem import __version__
from mainstem.cli import pipeline
from mainstem.cli.commands import (
    bench,
    client_metrics,
    cluster,
    config,
    groups,
    log_files,
    mqtt,
    node,
    topics,
    transactions,
)
from mainstem.cli.commands.consume import consume
from mainstem.cli.commands.dev import dev
from mainstem.cli.commands.kafka_apis import kafka_apis
from mainstem.cli.commands.produce import produce
from mainstem.cli.commands.queues import exchanges, queues
from mainstem.cli.commands.security import (
    acls,
    api_tokens,
    certs,
    delegation_tokens,
    quotas,
    roles,
    users,
)
from mainstem.cli.commands.sim import sim
from mainstem.cli.errors import ExitCode, exit_code, exit_on_broken_pipe, report
from mainstem.cli.login.options import with_login
from mainstem.model.errors import MainstemError

app = typer.Typer(
    name="mainstem",
    help="Mainstem, a message broker for Kafka, AMQP and MQTT clients: run, inspect and use it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("dev")(dev)
app.add_typer(topics.app, name="topic")
app.command("produce")(produce)
app.command("consume")(consume)
app.add_typer(groups.app, name="group")
app.add_typer(queues.app, name="queue")
app.add_typer(exchanges.exchange_app, name="exchange")
app.add_typer(exchanges.binding_app, name="binding")
app.add_typer(mqtt.app, name="mqtt")
app.add_typer(transactions.app, name="transaction")
app.add_typer(users.app, name="user")
app.add_typer(acls.app, name="acl")
app.add_typer(roles.app, name="role")
app.add_typer(quotas.app, name="quota")
app.add_typer(api_tokens.app, name="token")
app.add_typer(delegation_tokens.app, name="delegation-token")
app.add_typer(certs.app, name="cert")
app.add_typer(cluster.app, name="cluster")
app.add_typer(node.app, name="node")
app.add_typer(client_metrics.app, name="client-metrics")
app.add_typer(log_files.app, name="log")
app.add_typer(config.app, name="config")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(bench.app, name="bench")
app.command("kafka-apis")(kafka_apis)
app.command("sim")(sim)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        print(f"mainstem {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=lambda wanted: _print_version(wanted=wanted),
                     is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:  # fmt: skip
    del version


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with a documented exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with exit_on_broken_pipe():
        try:
            _commands()(args=words, prog_name="mainstem")
        except MainstemError as error:
            report(error, as_json=_wants_json(words))
            sys.exit(exit_code(error))
        except KeyboardInterrupt:
            sys.exit(ExitCode.INTERRUPTED)
        finally:
            sys.stdout.flush()


@functools.cache
def _commands() -> Any:
    """The tree of commands, built once: building it takes longer than most commands run."""
    return with_login(typer.main.get_command(app))


def _wants_json(words: Sequence[str]) -> bool:
    """Whether JSON output is requested, in any of the forms an option may have."""
    if "--output=json" in words or "-ojson" in words:
        return True
    return any(
        word in {"-o", "--output"} and following == "json"
        for word, following in itertools.pairwise(words)
    )
