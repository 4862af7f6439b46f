"""``mainstem group``: list, describe, lag, settings, reset-offsets and delete groups."""

from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.commands.group_offsets import reset_offsets
from mainstem.cli.commands.topics import assignments
from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.render import Output, show_confirmation, show_one, show_rows
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    OutputForm,
    TimeoutSeconds,
)

if TYPE_CHECKING:
    from mainstem.client.admin import Admin
    from mainstem.client.administration.groups import PartitionLag

app = typer.Typer(help="Consumer groups: members, lag, offsets.", no_args_is_help=True)
app.command("reset-offsets")(reset_offsets)

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Groups = Annotated[list[str], typer.Argument(metavar="GROUP...", help="Names of groups.")]


@app.command("list")
def list_groups(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only groups in this state, such as Stable or Empty."),
    ] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List groups."""
    found = with_admin(bootstrap, timeout, lambda admin: admin.groups.list_all(state or []))
    rows = [
        {
            "group": group.id,
            "state": group.state,
            "type": group.type or None,
            "protocol_type": group.protocol_type,
        }
        for group in found
    ]
    show_rows(rows, output, columns=["group", "state", "type", "protocol_type"])


@app.command("describe")
def describe(
    name: Group,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Describe a group: state, coordinator, members and their partitions."""
    group = with_admin(bootstrap, timeout, lambda admin: admin.groups.describe(name))
    members: list[dict[str, object]] = [
        {
            "member": member.id,
            "client": member.client_id,
            "host": member.host,
            "instance": member.instance_id,
            "partitions": [str(partition) for partition in member.assignment],
        }
        for member in group.members
    ]
    facts: dict[str, object] = {
        "group": group.id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": f"{group.coordinator.host}:{group.coordinator.port}",
    }
    if output is not Output.TABLE:
        show_one(facts | {"members": members}, output)
        return
    show_one(facts, output)
    if members:
        print()
        show_rows(members, output)


@app.command("lag")
def lag(
    names: Groups,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show the lag of groups, by partition."""

    async def act(admin: "Admin") -> list[tuple[str, "PartitionLag"]]:
        return [(name, found) for name in names for found in await admin.groups.lag(name)]

    rows = [
        {
            "group": name,
            "topic": found.partition.topic,
            "partition": found.partition.partition,
            "committed": _known(found.committed),
            "end": _known(found.end),
            "lag": _known(found.lag),
            "client": found.member.client_id if found.member else None,
        }
        for name, found in with_admin(bootstrap, timeout, act)
    ]
    columns = ["group", "topic", "partition", "committed", "end", "lag", "client"]
    show_rows(rows, output, columns=columns)


def _known(number: int) -> int | None:
    return number if number >= 0 else None


@app.command("settings")
def settings(
    name: Group,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show the settings of a group."""
    found = with_admin(bootstrap, timeout, lambda admin: admin.groups.settings(name))
    rows = [{"setting": setting, "value": value} for setting, value in sorted(found.items())]
    show_rows(rows, output, columns=["setting", "value"])


@app.command("alter")
def alter(
    name: Group,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting; may be repeated."),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="NAME", help="Back to the default; may be repeated."),
    ] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Change settings of a group, which need not exist yet."""
    changed, removed = assignments(config or []), remove or []
    if not (changed or removed):
        raise UsageFailure("nothing to change", remedy="give --config or --remove")
    with_admin(
        bootstrap, timeout, lambda admin: admin.groups.alter_settings(name, changed, removed)
    )
    row = {"group": name, "changed": changed, "removed": removed}
    show_confirmation(f"altered {name}", row, output)


@app.command("delete")
def delete(
    names: Groups,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete groups that have no members, and their committed offsets."""
    with_admin(bootstrap, timeout, lambda admin: admin.groups.delete(names))
    show_confirmation(f"deleted {', '.join(names)}", {"deleted": names}, output)
