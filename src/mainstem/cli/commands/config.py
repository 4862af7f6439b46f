"""``mainstem config``: which settings exist, what they are and where they came from."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mainstem.cli.output.render import Output, show_rows
from mainstem.cli.parameters.shared import Assignments, ConfigFile, OutputForm

app = typer.Typer(help="Settings of a node.", no_args_is_help=True)


@app.command("show")
def show(
    origin: Annotated[
        bool, typer.Option("--origin", help="Also show where each value came from.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Also show what each setting is for.")
    ] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that differ from the defaults.")
    ] = False,
    config: ConfigFile = None,
    preset: Annotated[str | None, typer.Option(help="Defaults for a purpose.")] = None,
    assignments: Assignments = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show every setting with the value that a node started now would use."""
    from mainstem.node.config.command_line import assigned
    from mainstem.node.config.loader import DEFAULT_ORIGIN, load

    loaded = load(
        file=Path(config) if config else None,
        environment=os.environ,
        flags=assigned(assignments or []),
        preset=preset,
    )
    rows: list[dict[str, object]] = []
    for setting in loaded.settings():
        if changed and setting.origin == DEFAULT_ORIGIN:
            continue
        row: dict[str, object] = {"setting": setting.leaf.path, "value": setting.value}
        if origin:
            row["origin"] = setting.origin
        if explain:
            row["explanation"] = setting.leaf.documentation
        rows.append(row)
    show_rows(rows, output, columns=[] if rows else ["setting", "value"])
