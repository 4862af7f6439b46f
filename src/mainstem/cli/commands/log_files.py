"""``mainstem log``: checks and copies the files of a node."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mainstem.cli.errors import ExitCode, UsageFailure
from mainstem.cli.output.render import Output, show_confirmation, show_rows
from mainstem.cli.parameters.shared import OutputForm
from mainstem.model.errors import ErrorCode, Unavailable

app = typer.Typer(help="Files of a node: check them, copy them.", no_args_is_help=True)


@app.command("verify")
def verify(
    data_dir: Annotated[Path, typer.Argument(help="Folder of the node's data.")] = Path("data"),
    output: OutputForm = Output.TABLE,
) -> None:
    """Check every byte of every segment, index and header; change nothing.

    Exits with code 6 if something is damaged. An incomplete batch at the end, left by a crash, is
    not damage: the next start truncates it.
    """
    from mainstem.log.verification.data_directory import iterate_findings

    if not data_dir.is_dir():
        raise UsageFailure("the folder does not exist", subject=str(data_dir))
    with _stopped(data_dir):
        rows = [
            {
                "file": str(found.path),
                "position": found.position,
                "offset": found.offset,
                "cause": found.cause,
            }
            for found in iterate_findings(data_dir)
        ]
    if rows or output is not Output.TABLE:
        show_rows(rows, output, columns=["file", "position", "offset", "cause"])
    else:
        print(f"no damage found in {data_dir}")
    if rows:
        raise typer.Exit(ExitCode.CORRUPT)


@app.command("backup")
def backup(
    data_dir: Annotated[Path, typer.Argument(help="Folder of the node's data.")],
    target: Annotated[Path, typer.Argument(help="Folder of the copy; created if missing.")],
    output: OutputForm = Output.TABLE,
) -> None:
    """Copy the data of a node so that a node can be started from the copy.

    The node may run, unless it belongs to a cluster: then it has to be stopped.
    """
    from mainstem.node.backup import back_up

    if not data_dir.is_dir():
        raise UsageFailure("the folder does not exist", subject=str(data_dir))
    copied = back_up(data_dir, target)
    show_confirmation(
        f"copied {copied.ranges} ranges with {copied.size_bytes} bytes of records to {target}",
        {"target": str(target), "ranges": copied.ranges, "size_bytes": copied.size_bytes},
        output,
    )


@contextmanager
def _stopped(data_dir: Path) -> Iterator[None]:
    """Make sure that no node writes meanwhile; half-written batches would look damaged."""
    from mainstem.log.store import LOCK

    path = data_dir / LOCK
    if not path.exists():
        raise UsageFailure(
            "no node has ever used this folder",
            subject=str(data_dir),
            remedy="give the folder that is set as node.data_dir",
        )
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise Unavailable(
                ErrorCode.STORAGE_FAILED,
                "a running node uses the folder",
                subject=str(data_dir),
                remedy="stop the node first; a running node verifies its files itself",
            ) from None
        yield
