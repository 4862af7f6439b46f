"""``mainstem sim``: nodes under kills, network partitions and power losses, in virtual time."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer


def sim(
    seed: Annotated[
        int, typer.Option("--seed", help="The first seed; each scenario has its own.")
    ] = 1,
    hours: Annotated[
        float, typer.Option("--hours", min=0.0, help="How many simulated hours to run.")
    ] = 1.0,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", help="A file of results; scenarios already in it are not run again."
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="How many processes run scenarios.")
    ] = 1,
) -> None:
    """Run three nodes under faults, and check that nothing acknowledged is lost.

    Only time, threads and the network are simulated: the same seed gives the same trace.
    """
    # A separate process: the simulation replaces time and threads of the whole interpreter.
    command = [sys.executable, "-m", "mainstem.testing.simulation.cluster.scenarios"]
    words = ["--seed", str(seed), "--hours", str(hours), "--workers", str(workers)]
    if keep is not None:
        words += ["--keep", str(keep)]
    # Nothing is written to the pipe: when it closes, the child knows that this process ended.
    words += ["--end-with-stdin"]
    with subprocess.Popen([*command, *words], stdin=subprocess.PIPE) as running:  # noqa: S603
        code = running.wait()
    raise typer.Exit(code)
