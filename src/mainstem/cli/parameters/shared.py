"""Options that many commands share, each declared once."""

from typing import Annotated

import typer

from mainstem.cli.login.access import ConnectionOptions
from mainstem.cli.output.render import Output

BOOTSTRAP = "bootstrap"  # the name of the parameter that marks commands that log in
DEFAULT_BOOTSTRAP = ConnectionOptions()
DEFAULT_TIMEOUT_S = 30.0

Bootstrap = Annotated[
    ConnectionOptions,
    typer.Option(
        "--bootstrap",
        "-b",
        parser=ConnectionOptions.parse,
        metavar="HOST:PORT[,...]",
        help="Address of a node of the cluster, or $MAINSTEM_BOOTSTRAP.",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="URL",
        help="URL of the HTTP API, or $MAINSTEM_HTTP.  [default: port 8080 at --bootstrap]",
    ),
]
OutputForm = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
TimeoutSeconds = Annotated[
    float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Give up after this time.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
ConfigFile = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="A .toml, .yaml or .yml file."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Any setting; may be repeated."),
]
