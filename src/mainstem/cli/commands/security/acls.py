"""``mainstem acl``: create, list and delete access rules."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.commands.security import resource_options as named
from mainstem.cli.commands.security.resource_options import Resource, principal
from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.render import Output, show_rows
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    OutputForm,
    TimeoutSeconds,
    Yes,
)
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from mainstem.client.admin import Admin
    from mainstem.client.administration.acls import Acl, AclRuleFilter

app = typer.Typer(help="Access rules: who may do what.", no_args_is_help=True)

COLUMNS = ["principal", "permission", "operation", "resource", "name", "pattern", "host"]
PRODUCER = {"topic": ("write", "create"), "transactional_id": ("write",)}
CONSUMER = {"topic": ("read",), "group": ("read",)}

Host = Annotated[str, typer.Option("--host", help="Only from this address; * is any.")]
PatternFilter = Annotated[
    str | None,
    typer.Option("--pattern", help="literal, prefixed, glob, any, or match: all that apply."),
]
OneOperation = Annotated[
    str | None,
    typer.Option(
        "--operation",
        "-O",
        help="Only rules about this operation.",
        autocompletion=named.operation_names,
    ),
]
OnePrincipal = Annotated[
    str | None, typer.Option("--principal", help="Only rules for alice, or Group:ops.")
]
OneHost = Annotated[str | None, typer.Option("--host", help="Only rules for this address.")]


@app.command("create")
def create(
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="PRINCIPAL", help="alice, User:*, Group:ops; repeatable."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(
            "--deny", metavar="PRINCIPAL", help="The same, but denies; a denial takes precedence."
        ),
    ] = None,
    operation: named.Operations = None,
    producer: Annotated[
        bool, typer.Option("--producer", help="What a producer needs on the named resources.")
    ] = False,
    consumer: Annotated[
        bool, typer.Option("--consumer", help="What a consumer needs on the named resources.")
    ] = False,
    topic: named.Topics = None,
    group: named.Groups = None,
    transactional_id: named.TransactionalIds = None,
    cluster: named.Cluster = False,
    resource: named.Others = None,
    pattern: named.Pattern = "literal",
    host: Host = "*",
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Add rules: one for each combination of the principals, operations and resources given."""
    from mainstem.client.administration.acls import Acl

    on = named.resources(
        topics=topic,
        groups=group,
        transactional_ids=transactional_id,
        cluster=cluster,
        others=resource,
    )
    sides = [("allow", name) for name in allow or []] + [("deny", name) for name in deny or []]
    wanted = _operations(on, operation or [], producer=producer, consumer=consumer)
    if not sides or not wanted:
        raise UsageFailure(
            "a rule needs a principal, an operation and a resource",
            remedy="such as --allow alice --operation read --topic orders",
        )
    rules = [
        Acl(principal(who), what, place.kind, place.name, pattern, host, permission)
        for permission, who in sides
        for place, what in wanted
    ]
    with_admin(bootstrap, timeout, lambda admin: admin.acls.create(rules))
    show_rows(_rows(rules), output, columns=COLUMNS)


def _operations(
    on: Sequence[Resource], operations: Sequence[str], *, producer: bool, consumer: bool
) -> list[tuple[Resource, str]]:
    found = [(place, operation) for place in on for operation in operations]
    for wanted, table in ((producer, PRODUCER), (consumer, CONSUMER)):
        if not wanted:
            continue
        kinds = {place.kind for place in on}
        if "topic" not in kinds or (table is CONSUMER and "group" not in kinds):
            raise UsageFailure(
                "a producer writes to topics, a consumer reads topics as a group",
                remedy="give --topic, and for a consumer --group",
            )
        found += [(place, what) for place in on for what in table.get(place.kind, ())]
    return list(dict.fromkeys(found))


@app.command("list")
def list_rules(
    principal_name: OnePrincipal = None,
    operation: OneOperation = None,
    topic: named.Topics = None,
    group: named.Groups = None,
    transactional_id: named.TransactionalIds = None,
    cluster: named.Cluster = False,
    resource: named.Others = None,
    pattern: PatternFilter = None,
    host: OneHost = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List rules: all, or those that match. A resource finds every rule that applies to it."""
    on = named.resources(
        topics=topic,
        groups=group,
        transactional_ids=transactional_id,
        cluster=cluster,
        others=resource,
    )
    filters = _filters(on, principal_name, operation, host, pattern or ("match" if on else "any"))

    async def act(admin: "Admin") -> list["Acl"]:
        found = [rule for rule_filter in filters for rule in await admin.acls.find(rule_filter)]
        return list(dict.fromkeys(found))

    show_rows(_rows(with_admin(bootstrap, timeout, act)), output, columns=COLUMNS)


@app.command("delete")
def delete(
    principal_name: OnePrincipal = None,
    operation: OneOperation = None,
    topic: named.Topics = None,
    group: named.Groups = None,
    transactional_id: named.TransactionalIds = None,
    cluster: named.Cluster = False,
    resource: named.Others = None,
    pattern: PatternFilter = None,
    host: OneHost = None,
    everything: Annotated[bool, typer.Option("--all", help="All rules.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if nothing is found.")
    ] = False,
    yes: Yes = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete the rules that match; a name matches literal rules unless --pattern is given.

    Shows the deleted rules.
    """
    on = named.resources(
        topics=topic,
        groups=group,
        transactional_ids=transactional_id,
        cluster=cluster,
        others=resource,
    )
    if everything == bool(on or principal_name or operation or host):
        raise UsageFailure("no rules are selected", remedy="give a filter, or --all alone")
    filters = _filters(on, principal_name, operation, host, pattern or ("literal" if on else "any"))

    async def find(admin: "Admin") -> list["Acl"]:
        found = [rule for rule_filter in filters for rule in await admin.acls.find(rule_filter)]
        return list(dict.fromkeys(found))

    ask = not yes and not dry_run and sys.stdin.isatty()
    if dry_run or ask:
        found = with_admin(bootstrap, timeout, find)
        if ask and found:
            show_rows(_rows(found), Output.TABLE, columns=COLUMNS)
            typer.confirm(f"Delete {len(found)} rules?", abort=True)
    if not dry_run:
        found = with_admin(bootstrap, timeout, lambda admin: admin.acls.delete(filters))
    if not found and not if_exists:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE,
            "no rule matches",
            subject="access rules",
            remedy="list them: mainstem acl list",
        )
    show_rows(_rows(found), output, columns=COLUMNS)


def _filters(
    on: Sequence[Resource], who: str | None, operation: str | None, host: str | None, pattern: str
) -> list["AclRuleFilter"]:
    from mainstem.client.administration.acls import AclRuleFilter

    rule_filter = AclRuleFilter(
        principal=principal(who) if who else None, operation=operation, pattern=pattern, host=host
    )
    return [rule_filter._replace(resource=place.kind, name=place.name) for place in on] or [
        rule_filter
    ]


def _rows(rules: Sequence["Acl"]) -> list[dict[str, object]]:
    return [rule._asdict() for rule in rules]
