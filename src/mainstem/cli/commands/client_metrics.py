"""``mainstem client-metrics``: subscriptions to metrics of clients (KIP-714)."""

from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.render import Output, show_confirmation, show_rows
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    OutputForm,
    TimeoutSeconds,
)
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from mainstem.client.admin import Admin

app = typer.Typer(help="Subscriptions to metrics of clients.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the subscription.")]


@app.command("set")
def set_subscription(
    name: Name,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metrics",
            "-m",
            metavar="PREFIX",
            help="Prefix of metric names, * for all; may be repeated.",
        ),
    ] = None,
    interval_ms: Annotated[
        int | None,
        typer.Option("--interval-ms", min=100, max=3_600_000, help="How often clients push."),
    ] = None,
    match: Annotated[
        list[str] | None,
        typer.Option(
            "--match",
            metavar="SELECTOR=REGEX",
            help="Only these clients, such as client_id=app-.*; may be repeated.",
        ),
    ] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create or change a subscription; settings that are not named stay as they are."""
    changed: dict[str, str] = {}
    if metrics:
        changed["metrics"] = ",".join(metrics)
    if interval_ms is not None:
        changed["interval.ms"] = str(interval_ms)
    if match:
        changed["match"] = ",".join(match)
    if not changed:
        raise UsageFailure("nothing to set", subject=name, remedy="--metrics PREFIX")
    with_admin(bootstrap, timeout, lambda admin: admin.client_metrics.alter(name, changed))
    show_confirmation(f"set {name}", {"name": name, "changed": changed}, output)


@app.command("list")
def list_subscriptions(
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List subscriptions: their metrics, interval and clients."""

    async def act(admin: "Admin") -> list[dict[str, object]]:
        rows: list[dict[str, object]] = []
        for name in await admin.client_metrics.names():
            held = await admin.client_metrics.settings(name)
            rows.append(
                {
                    "name": name,
                    "metrics": held.get("metrics", ""),
                    "interval_ms": int(held.get("interval.ms") or 0),
                    "match": held.get("match", ""),
                }
            )
        return rows

    rows = with_admin(bootstrap, timeout, act)
    show_rows(rows, output, columns=["name", "metrics", "interval_ms", "match"])


@app.command("delete")
def delete(
    name: Name,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if it does not exist.")
    ] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete a subscription; clients stop sending its metrics."""
    was_there = with_admin(bootstrap, timeout, lambda admin: admin.client_metrics.delete(name))
    if not was_there and not if_exists:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE,
            "there is no such subscription",
            subject=name,
            remedy="list them: mainstem client-metrics list",
        )
    done = f"deleted {name}" if was_there else f"{name} does not exist"
    show_confirmation(done, {"name": name, "deleted": was_there}, output)
