"""``mainstem sim``: whole nodes under kills, cuts and power losses, in virtual time."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer


def sim(
    seed: Annotated[int, typer.Option("--seed", help="The first story; each has its own.")] = 1,
    hours: Annotated[
        float, typer.Option("--hours", min=0.0, help="How long, in the time of the stories.")
    ] = 1.0,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep", help="A file that stories are kept in: those it has are not retold."
        ),
    ] = None,
) -> None:
    """Let three nodes live through faults, and check that nothing acknowledged is lost.

    Everything is real but time, threads and the network: the same seed gives the same trace.
    """
    # A process of its own: what is simulated must not know that it is.
    command = [sys.executable, "-m", "mainstem.testing.cluster_sim_stories"]
    words = ["--seed", str(seed), "--hours", str(hours)]
    if keep is not None:
        words += ["--keep", str(keep)]
    told = subprocess.run([*command, *words], check=False)  # noqa: S603 - our own module
    raise typer.Exit(told.returncode)
