"""Options that many commands share, each declared once."""

from typing import Annotated

import typer

from mainstem.cli.render import Output

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 30.0

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="MAINSTEM_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help="Where to reach the cluster first.",
    ),
]
OutputForm = Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")]
TimeoutSeconds = Annotated[
    float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Give up after this time.")
]
ConfigFile = Annotated[
    str | None,
    typer.Option("--config", metavar="FILE", help="A .toml, .yaml or .yml file."),
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Any setting; may be repeated."),
]
