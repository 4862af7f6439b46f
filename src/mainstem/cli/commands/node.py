"""``mainstem node``: drains and removes single nodes of a cluster."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.output.render import Output, show_confirmation
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
    from mainstem.client.administration.rest_cluster import RestCluster

app = typer.Typer(help="Single nodes of a cluster.", no_args_is_help=True)

Node = Annotated[int, typer.Argument(metavar="NODE", min=0, help="Id of the node.")]

_LOOK_S = 0.5


@app.command("drain")
def drain(
    node: Node,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Return once the node holds nothing.")
    ] = True,
    undo: Annotated[
        bool, typer.Option("--undo", help="Undo: allow partitions on the node again.")
    ] = False,
    timeout: TimeoutSeconds = 600.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    http: Http = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Move all data off a node, so that it can be removed from the cluster."""
    cluster = bootstrap.cluster_rest(http, DEFAULT_TIMEOUT_S)
    cluster.drain(node, on=not undo)
    if undo:
        show_confirmation(f"node {node} accepts partitions again", {"node": node}, output)
        return
    left = _wait_until_empty(cluster, node, timeout) if wait else _held(cluster, node)
    sentence = f"node {node} is empty" if not left else f"node {node} still holds {left} ranges"
    show_confirmation(sentence, {"node": node, "ranges": left}, output)


@app.command("remove")
def remove(
    node: Node,
    yes: Yes = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    http: Http = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Remove a node that is permanently gone and writes no partition."""
    if not yes:
        typer.confirm(f"Remove node {node}?", abort=True, err=True)
    bootstrap.cluster_rest(http, timeout).remove(node)
    show_confirmation(f"node {node} is no longer part of the cluster", {"node": node}, output)


def _held(cluster: "RestCluster", node: int) -> int:
    rows = [row for row in cluster.overview()["nodes"] if row["node"] == node]
    if not rows:
        raise UsageFailure("the node does not exist", subject=f"node {node}")
    return int(rows[0]["ranges"]) + int(rows[0]["copying"])


def _wait_until_empty(cluster: "RestCluster", node: int, timeout_s: float) -> int:
    give_up = time.monotonic() + timeout_s
    while (left := _held(cluster, node)) and time.monotonic() < give_up:
        time.sleep(_LOOK_S)
    return left
