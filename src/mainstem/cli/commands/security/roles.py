"""``mainstem role``: named sets of rules, and who has them, over the HTTP API."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.commands.security import resource_options as named
from mainstem.cli.commands.security.resource_options import principal
from mainstem.cli.errors import UsageFailure
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
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from mainstem.client.rest_admin import RoleInfo, RoleRuleInfo

app = typer.Typer(help="Roles: what they allow, who has them.", no_args_is_help=True)

Role = Annotated[str, typer.Argument(metavar="ROLE", help="Name of the role.")]
Members = Annotated[
    list[str],
    typer.Argument(metavar="PRINCIPAL...", help="alice for User:alice, or Group:ops."),
]
RULE_COLUMNS = ["permission", "operation", "resource", "name", "pattern"]


@app.command("create")
def create(
    role: Role,
    operation: named.Operations = None,
    topic: named.Topics = None,
    group: named.Groups = None,
    transactional_id: named.TransactionalIds = None,
    cluster: named.Cluster = False,
    resource: named.Others = None,
    pattern: named.Pattern = "literal",
    deny: Annotated[
        bool, typer.Option("--deny", help="Deny instead of allow; a denial takes precedence.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="More rules: a YAML or JSON list, as printed by -o."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the rules of an existing role.")
    ] = False,
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create a role: rules for each operation on each resource given, and those of a file.

    The roles admin, producer, consumer and read-only are built in.
    """
    from mainstem.client.rest_admin import RoleRuleInfo

    on = named.resources(
        topics=topic,
        groups=group,
        transactional_ids=transactional_id,
        cluster=cluster,
        others=resource,
    )
    permission = "deny" if deny else "allow"
    rules = [
        RoleRuleInfo(place.kind, what.lower().replace("-", "_"), place.name, pattern, permission)
        for place in on
        for what in operation or []
    ]
    rules += _of_file(file) if file is not None else []
    if not rules:
        raise UsageFailure(
            "a role needs rules", remedy="such as --operation read --topic orders, or --file"
        )
    rest = bootstrap.rest(http, timeout)
    if not replace and any(each.name == role for each in rest.roles()):
        raise InvalidRequest(
            ErrorCode.DUPLICATE_RESOURCE,
            "a role of that name exists",
            subject=role,
            remedy="--replace replaces its rules with these",
        )
    made = rest.set_role(role, rules)
    noun = "rule" if len(made.rules) == 1 else "rules"
    show_confirmation(f"role {role} has {len(made.rules)} {noun}", _document(made), output)


def _of_file(path: Path) -> list["RoleRuleInfo"]:
    import msgspec
    import yaml

    from mainstem.client.rest_admin import RoleRuleInfo

    try:
        content = yaml.safe_load(path.read_text())
        return msgspec.convert(content, list[RoleRuleInfo])
    except OSError as error:
        raise UsageFailure(error.strerror or str(error), subject=str(path)) from error
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageFailure(f"not a list of rules: {error}", subject=str(path)) from error


@app.command("list")
def list_roles(
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List roles."""
    rows = [
        {
            "name": role.name,
            "built_in": role.built_in,
            "rules": len(role.rules),
            "members": role.members,
        }
        for role in bootstrap.rest(http, timeout).roles()
    ]
    show_rows(rows, output, columns=["name", "built_in", "rules", "members"])


@app.command("describe")
def describe(
    role: Role,
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Describe a role: its rules and who has it."""
    found = [each for each in bootstrap.rest(http, timeout).roles() if each.name == role]
    if not found:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE,
            "there is no such role",
            subject=role,
            remedy="list them: mainstem role list",
        )
    facts = _document(found[0])
    if output is not Output.TABLE:
        show_one(facts, output)
        return
    rules = facts.pop("rules")
    assert isinstance(rules, list)
    show_one(facts, output)
    print()
    show_rows(rules, output, columns=RULE_COLUMNS)


def _document(role: "RoleInfo") -> dict[str, object]:
    from msgspec.structs import asdict

    return {
        "name": role.name,
        "built_in": role.built_in,
        "members": role.members,
        "rules": [asdict(rule) for rule in role.rules],
    }


@app.command("grant")
def grant(
    role: Role,
    members: Members,
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Grant a role to users or groups."""
    rest = bootstrap.rest(http, timeout)
    names = [principal(name) for name in members]
    for name in names:
        rest.grant(role, name)
    show_confirmation(
        f"granted {role} to {', '.join(names)}", {"role": role, "granted": names}, output
    )


@app.command("revoke")
def revoke(
    role: Role,
    members: Members,
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Revoke a role from users or groups."""
    rest = bootstrap.rest(http, timeout)
    names = [principal(name) for name in members]
    for name in names:
        rest.revoke(role, name)
    show_confirmation(
        f"revoked {role} from {', '.join(names)}", {"role": role, "revoked": names}, output
    )


@app.command("delete")
def delete(
    role: Role,
    yes: Yes = False,
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete a role and revoke it from all principals."""
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete the role {role}?", abort=True)
    bootstrap.rest(http, timeout).delete_role(role)
    show_confirmation(f"deleted {role}", {"deleted": role}, output)
