"""``mainstem user``: users that log in with a password."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.commands.security import new_secret
from mainstem.cli.commands.security.resource_options import principal, user_name
from mainstem.cli.login.access import ConnectionOptions
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
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from mainstem.client.admin import Admin

app = typer.Typer(help="Users and their passwords.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--keys", help="SCRAM-SHA-256 or SCRAM-SHA-512; by default both, and PLAIN works with any."
    ),
]
Iterations = Annotated[
    int,
    typer.Option(
        "--iterations", min=4_096, max=16_384, help="SCRAM iterations; more make guessing slower."
    ),
]


@app.command("create")
def create(
    name: Name,
    new_password_file: new_secret.File = None,
    stdin: new_secret.Stdin = False,
    generate: new_secret.Generate = False,
    keys: Keys = None,
    iterations: Iterations = 4_096,
    if_not_exists: Annotated[
        bool,
        typer.Option("--if-not-exists", help="Succeed if the user exists, and change nothing."),
    ] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create a user with a password but no permissions: see `acl create` and `role grant`."""
    name = user_name(name)
    if _exists(bootstrap, timeout, name):
        if not if_not_exists:
            raise InvalidRequest(
                ErrorCode.DUPLICATE_RESOURCE,
                "a user of that name exists",
                subject=name,
                remedy="mainstem user password sets a new password",
            )
        show_confirmation(f"{name} already exists", {"created": None}, output)
        return
    password = new_secret.new_password(name, new_password_file, stdin=stdin, generate=generate)
    _set(bootstrap, timeout, name, password, keys, iterations)
    row: dict[str, object] = {"created": name}
    suffix = ""
    if generate:
        row["password"] = password
        suffix = f" with the password {password}"
    show_confirmation(f"created {name}{suffix}", row, output)


@app.command("password")
def change_password(
    name: Name,
    new_password_file: new_secret.File = None,
    stdin: new_secret.Stdin = False,
    generate: new_secret.Generate = False,
    keys: Keys = None,
    iterations: Iterations = 4_096,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Set a new password; the old one is no longer accepted."""
    name = user_name(name)
    if not _exists(bootstrap, timeout, name):
        raise _unknown(name)
    password = new_secret.new_password(name, new_password_file, stdin=stdin, generate=generate)
    _set(bootstrap, timeout, name, password, keys, iterations)
    row: dict[str, object] = {"changed": name}
    suffix = ""
    if generate:
        row["password"] = password
        suffix = f" to {password}"
    show_confirmation(f"changed the password of {name}{suffix}", row, output)


def _exists(bootstrap: ConnectionOptions, timeout_s: float, name: str) -> bool:
    found = with_admin(bootstrap, timeout_s, lambda admin: admin.credentials.user(name))
    return found is not None


def _set(
    bootstrap: ConnectionOptions,
    timeout_s: float,
    name: str,
    password: str,
    keys: list[str] | None,
    iterations: int,
) -> None:
    async def act(admin: "Admin") -> None:
        from mainstem.client.administration.credentials import MECHANISMS

        mechanisms = [key.upper() for key in keys or MECHANISMS]
        await admin.credentials.set_password(
            name, password, mechanisms=mechanisms, iterations=iterations
        )

    with_admin(bootstrap, timeout_s, act)


@app.command("list")
def list_users(
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List users that have a password."""
    found = with_admin(bootstrap, timeout, lambda admin: admin.credentials.users())
    rows = [
        {
            "name": user.name,
            "mechanisms": list(user.iterations),
            "iterations": max(user.iterations.values(), default=0),
        }
        for user in found
    ]
    show_rows(rows, output, columns=["name", "mechanisms", "iterations"])


@app.command("describe")
def describe(
    name: Name,
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Describe a user: mechanisms, roles and access rules."""
    from mainstem.client.administration.acls import AclRuleFilter

    name = user_name(name)
    rest = bootstrap.rest(http, timeout)
    known = {user.name: user for user in rest.users()}
    if name not in known:
        raise _unknown(name)
    rule_filter = AclRuleFilter(principal=principal(f"User:{name}"))
    rules = with_admin(bootstrap, timeout, lambda admin: admin.acls.find(rule_filter))
    facts: dict[str, object] = {
        "name": name,
        "mechanisms": known[name].mechanisms,
        "roles": known[name].roles,
        "tokens": [t.id for t in rest.tokens() if t.owner == f"User:{name}"],
    }
    listed = [rule._asdict() for rule in rules]
    if output is not Output.TABLE:
        show_one(facts | {"rules": listed}, output)
        return
    show_one(facts, output)
    if listed:
        print()
        columns = ["permission", "operation", "resource", "name", "pattern", "host"]
        show_rows(listed, output, columns=columns)


@app.command("delete")
def delete(
    name: Name,
    with_rules: Annotated[
        bool, typer.Option("--with-rules", help="Also delete the access rules of the user.")
    ] = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the user does not exist.")
    ] = False,
    yes: Yes = False,
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete a user: password, roles and tokens.

    As in Kafka, access rules stay and apply to a later user of that name, unless --with-rules.
    """
    from mainstem.client.administration.acls import AclRuleFilter

    name = user_name(name)
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Delete the user {name}?", abort=True)
    gone = True
    try:
        bootstrap.rest(http, timeout).delete_user(name)
    except InvalidRequest as error:
        if error.code is not ErrorCode.UNKNOWN_RESOURCE or not if_exists:
            raise
        gone = False
    rules = 0
    if with_rules:
        rule_filter = AclRuleFilter(principal=f"User:{name}")
        rules = len(with_admin(bootstrap, timeout, lambda admin: admin.acls.delete([rule_filter])))
    row = {"deleted": name if gone else None, "rules_deleted": rules}
    suffix = f" and {rules} access {'rule' if rules == 1 else 'rules'}" if rules else ""
    show_confirmation(
        f"deleted {name}{suffix}" if gone else f"{name} does not exist{suffix}", row, output
    )


def _unknown(name: str) -> InvalidRequest:
    return InvalidRequest(
        ErrorCode.UNKNOWN_RESOURCE,
        "there is no such user",
        subject=name,
        remedy="list them: mainstem user list",
    )
