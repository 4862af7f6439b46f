"""``mainstem cluster``: its nodes and ranges, its quorum, its features."""

from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.render import Output, show_confirmation, show_one, show_rows
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
    from mainstem.client.admin import Admin

app = typer.Typer(help="The cluster: nodes, ranges, quorum, features.", no_args_is_help=True)

_NODE_COLUMNS = [
    "node",
    "address",
    "status",
    "seen",
    "votes",
    "writes",
    "ranges",
    "size_bytes",
    "machine",
]
_RANGE_COLUMNS = [
    "topic",
    "partition",
    "index",
    "start",
    "end",
    "state",
    "writer",
    "replicas",
    "done",
]


@app.command("status")
def status(
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    http: Http = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show an overview of the cluster: leader, nodes and the state of ranges."""
    found = bootstrap.cluster_rest(http, timeout).overview()
    nodes = found["nodes"]
    by_status = {
        word: [row["node"] for row in nodes if row["status"] == word]
        for word in ("live", "draining", "fenced")
    }
    show_one(
        {
            "cluster_id": found["cluster_id"],
            "leader": found["leader"],
            "term": found["term"],
            "voters": found["voters"],
            **{word: numbers for word, numbers in by_status.items() if numbers},
            "ranges": found["ranges"],
            "moving_partitions": found["moving"],
        },
        output,
    )


@app.command("nodes")
def nodes(
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    http: Http = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """List the nodes: state, partitions written and replicas held."""
    found = bootstrap.cluster_rest(http, timeout).overview()
    rows = [
        {
            **row,
            "address": f"{row['host']}:{row['port']}",
            "votes": row["node"] in found["voters"],
            "leads": row["node"] == found["leader"],
        }
        for row in found["nodes"]
    ]
    show_rows(rows, output, columns=_NODE_COLUMNS)


@app.command("ranges")
def ranges(
    topic: Annotated[str | None, typer.Argument(help="Only the ranges of this topic.")] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    http: Http = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """List the ranges of partitions and the nodes that hold them."""
    show_rows(bootstrap.cluster_rest(http, timeout).ranges(topic), output, columns=_RANGE_COLUMNS)


@app.command("rebalance")
def rebalance(
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    http: Http = None,
    output: OutputForm = Output.TABLE,
) -> None:
    """Balance partitions and their leadership over the nodes now."""
    moved = bootstrap.cluster_rest(http, timeout).rebalance()
    show_confirmation(f"{moved} partitions are being moved" if moved else "the nodes are balanced",
              {"moves": moved}, output)  # fmt: skip


@app.command("describe")
def describe(
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Describe the cluster: id, nodes, voters of the catalogue."""

    async def act(admin: "Admin") -> dict[str, object]:
        found, quorum = await admin.describe_cluster(), await admin.cluster.quorum()
        return {
            "id": found.id,
            "controller": found.controller,
            "nodes": [f"{node.id} at {node.host}:{node.port}" for node in found.nodes],
            "quorum_leader": quorum.leader,
            "quorum_epoch": quorum.epoch,
            "quorum_end": quorum.end,
            "voters": list(quorum.voters),
            "observers": list(quorum.observers),
        }

    show_one(with_admin(bootstrap, timeout, act), output)


@app.command("features")
def features(
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List features: the level of each, and the levels that each node supports."""

    async def act(admin: "Admin") -> list[dict[str, object]]:
        found, by_node = await admin.cluster.features(), await admin.cluster.supported()
        return [
            {
                "name": f.name,
                "level": f.level,
                "lowest": f.lowest,
                "highest": f.highest,
                # A node of release 0.1 does not report mainstem.version, which is 1 there.
                "nodes": [f"{node}: {each.get(f.name, '1-1')}" for node, each in by_node.items()],
            }
            for f in found
        ]

    rows = with_admin(bootstrap, timeout, act)
    show_rows(rows, output, columns=["name", "level", "lowest", "highest", "nodes"])


@app.command("set-feature")
def set_feature(
    feature: Annotated[
        str, typer.Argument(metavar="NAME=LEVEL", help="Such as transaction.version=1; 0 is off.")
    ],
    separate: Annotated[
        str | None, typer.Argument(metavar="LEVEL", help="The level, if not given as NAME=LEVEL.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check whether it is possible.")
    ] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Set the level of a feature; it applies to clients that connect afterwards.

    mainstem.version limits what nodes may write; raise it after an upgrade; it is never lowered.
    """
    name, _, text = feature.partition("=")
    if separate is not None:
        name, text = feature, separate
    if not name or not text.isascii() or not text.isdigit():
        raise UsageFailure("a feature has a name and a level", subject=feature,
                           remedy="mainstem cluster set-feature transaction.version=1")  # fmt: skip
    level = int(text)
    with_admin(
        bootstrap,
        timeout,
        lambda admin: admin.cluster.set_feature(name, level, validate_only=dry_run),
    )
    done = "could be" if dry_run else "is now"
    show_confirmation(f"{name} {done} at level {level}", {"feature": name, "level": level}, output)


@app.command("unregister")
def unregister(
    node: Annotated[int, typer.Argument(metavar="NODE", min=0, help="Id of the node.")],
    yes: Yes = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Remove a node that is permanently gone and writes no partition."""
    if not yes:
        typer.confirm(f"Remove node {node}?", abort=True, err=True)
    with_admin(bootstrap, timeout, lambda admin: admin.cluster.unregister(node))
    show_confirmation(f"node {node} is no longer part of the cluster", {"node": node}, output)
