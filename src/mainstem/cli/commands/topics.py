"""``mainstem topic``: create, list, describe, alter and delete topics."""

import fnmatch
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

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
    from mainstem.client.values import ConfigEntry, TopicInfo

app = typer.Typer(help="Topics: create, list, describe, alter, delete.", no_args_is_help=True)

Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")]
Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting; may be repeated."),
]


@app.command("create")
def create(
    names: Names,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="Number of partitions; -1: the default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="Number of replicas; -1: the default.")
    ] = -1,
    config: Settings = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if a topic exists.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check whether it is possible.")
    ] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create topics."""
    from mainstem.client.admin import NewTopic

    configs = assignments(config or [])

    async def act(admin: "Admin") -> list[str]:
        there = set(await admin.list_topics(with_internal=True)) if if_not_exists else set()
        missing = [name for name in dict.fromkeys(names) if name not in there]
        new = [
            NewTopic(
                name=name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=dict(configs),
            )
            for name in missing
        ]
        if new:
            await admin.create_topics(new, validate_only=dry_run)
        return missing

    created = with_admin(bootstrap, timeout, act)
    verb = "would create" if dry_run else "created"
    sentence = f"{verb} {', '.join(created)}" if created else "nothing to create"
    show_confirmation(sentence, {"created": created, "dry_run": dry_run}, output)


@app.command("list")
def list_topics(
    pattern: Annotated[
        str | None, typer.Argument(help="Only names that match, such as 'orders.*'.")
    ] = None,
    internal: Annotated[bool, typer.Option("--internal", help="Also internal topics.")] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List topics."""
    topics = with_admin(bootstrap, timeout, lambda admin: admin.list_topics(with_internal=internal))
    rows = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replicas": max((len(p.replicas) for p in topic.partitions.values()), default=0),
            "internal": topic.is_internal,
        }
        for topic in topics.values()
        if pattern is None or fnmatch.fnmatchcase(topic.name, pattern)
    ]
    columns = ["name", "partitions", "replicas", *(["internal"] if internal else [])]
    show_rows(rows, output, columns=columns)


@app.command("describe")
def describe(
    names: Names,
    all_settings: Annotated[
        bool, typer.Option("--all-settings", help="Also settings with their default value.")
    ] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Describe topics: partitions, offsets and settings."""

    async def act(admin: "Admin") -> list[dict[str, object]]:
        topics = await admin.describe_topics(dict.fromkeys(names))
        found = []
        for topic in topics.values():
            settings = await admin.topic_configs(topic.name)
            shown = [s for s in settings if all_settings or s.source == "topic"]
            found.append(await _described(admin, topic, shown))
        return found

    found = with_admin(bootstrap, timeout, act)
    if output is not Output.TABLE:
        show_rows(found, output)
        return
    for index, topic in enumerate(found):
        if index:
            print()
        _print_topic(topic)


async def _described(
    admin: "Admin", topic: "TopicInfo", settings: Sequence["ConfigEntry"]
) -> dict[str, object]:
    from mainstem.client.consuming.offset_query import EARLIEST, LATEST
    from mainstem.client.values import TopicPartition
    from mainstem.model.ids import TopicId, topic_id_text

    places = [TopicPartition(topic.name, index) for index in topic.partitions]
    starts = await admin.offsets(dict.fromkeys(places, EARLIEST))
    ends = await admin.offsets(dict.fromkeys(places, LATEST))
    return {
        "name": topic.name,
        "id": topic_id_text(TopicId(topic.id)),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": place.partition,
                "leader": partition.leader,
                "epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "in_sync": list(partition.in_sync),
                "start_offset": starts[place].offset,
                "end_offset": ends[place].offset,
            }
            for place, partition in zip(places, topic.partitions.values(), strict=True)
        ],
        "settings": {setting.name: setting.value for setting in settings},
    }


def _print_topic(topic: dict[str, object]) -> None:
    partitions, settings = topic["partitions"], topic["settings"]
    assert isinstance(partitions, list)
    assert isinstance(settings, dict)
    show_one({"name": topic["name"], "id": topic["id"]}, Output.TABLE)
    print()
    show_rows(partitions, Output.TABLE)
    if settings:
        print()
        rows = [{"setting": name, "value": value} for name, value in settings.items()]
        show_rows(rows, Output.TABLE)


@app.command("alter")
def alter(
    name: Name,
    config: Settings = None,
    remove: Annotated[
        list[str] | None,
        typer.Option("--remove", metavar="NAME", help="Back to the default; may be repeated."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", min=1, help="New total; can only grow.")
    ] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Change settings or the number of partitions of a topic."""
    changed, removed = assignments(config or []), remove or []
    if not (changed or removed or partitions):
        raise UsageFailure("nothing to change", remedy="give --config, --remove or --partitions")

    async def act(admin: "Admin") -> None:
        if changed or removed:
            await admin.alter_topic_configs(name, changed=changed, removed=removed)
        if partitions is not None:
            await admin.create_partitions(name, partitions)

    with_admin(bootstrap, timeout, act)
    row = {"name": name, "changed": changed, "removed": removed, "partitions": partitions}
    show_confirmation(f"altered {name}", row, output)


@app.command("delete")
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if a topic does not exist.")
    ] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete topics and all their records."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete {', '.join(names)} and all records in it?", abort=True)

    async def act(admin: "Admin") -> list[str]:
        wanted = list(dict.fromkeys(names))
        if if_exists:
            there = await admin.list_topics(with_internal=True)
            wanted = [name for name in wanted if name in there]
        if wanted:
            await admin.delete_topics(wanted)
        return wanted

    deleted = with_admin(bootstrap, timeout, act)
    sentence = f"deleted {', '.join(deleted)}" if deleted else "nothing to delete"
    show_confirmation(sentence, {"deleted": deleted}, output)


def assignments(options: Sequence[str]) -> dict[str, str]:
    """``name=value`` options.

    Raises:
        UsageFailure: one without the equals sign.
    """
    found = {}
    for option in options:
        name, equals, value = option.partition("=")
        if not equals or not name:
            raise UsageFailure(f"{option!r} is not of the form name=value", subject="--config")
        found[name] = value
    return found
