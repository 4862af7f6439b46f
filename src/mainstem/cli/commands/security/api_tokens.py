"""``mainstem token``: API tokens, which authenticate programs as a user, over the HTTP API."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.commands.security.resource_options import user_name
from mainstem.cli.output.render import Output, show_confirmation, show_one, show_rows
from mainstem.cli.parameters.duration import parse_duration_ms
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Http,
    OutputForm,
    TimeoutSeconds,
)
from mainstem.cli.parameters.timestamp import format_timestamp

if TYPE_CHECKING:
    from mainstem.client.rest_admin import ApiTokenInfo

app = typer.Typer(help="API tokens, for programs.", no_args_is_help=True)

COLUMNS = ["id", "owner", "name", "created", "expires", "roles"]


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(help="What it is for, as the list shows it.")] = "",
    owner: Annotated[str | None, typer.Option("--owner", help="Owner, if not yourself.")] = None,
    lifetime: Annotated[
        str | None,
        typer.Option("--lifetime", help="Lifetime, such as 12h or 30d.  [default: no expiry]"),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="Restrict it to what this role allows; may be repeated."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="Write it to this file, readable by you only, instead of printing it."
        ),
    ] = None,
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create a token. It is shown only once: the node stores a hash of it."""
    lifetime_ms = parse_duration_ms(lifetime) if lifetime is not None else None
    made = bootstrap.rest(http, timeout).create_token(
        name, user=user_name(owner) if owner else None, lifetime_ms=lifetime_ms, roles=role
    )
    facts = _facts(made)
    if file is not None:
        from mainstem.cli.development.certificates import write_secret

        write_secret(file, made.token)
        facts["file"] = str(file)
    else:
        facts["token"] = made.token
    show_one(facts, output)


@app.command("list")
def list_tokens(
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List your tokens, or all tokens if you may describe the cluster."""
    found = bootstrap.rest(http, timeout).tokens()
    show_rows([_facts(token) for token in found], output, columns=COLUMNS)


@app.command("revoke")
def revoke(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of tokens.")],
    http: Http = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Revoke tokens; they are no longer accepted."""
    rest = bootstrap.rest(http, timeout)
    for token_id in ids:
        rest.revoke_token(token_id)
    show_confirmation(f"revoked {', '.join(ids)}", {"revoked": ids}, output)


def _facts(token: "ApiTokenInfo") -> dict[str, object]:
    return {
        "id": token.id,
        "owner": token.owner,
        "name": token.name,
        "created": format_timestamp(token.created_ms),
        "expires": None if token.expires_ms is None else format_timestamp(token.expires_ms),
        "roles": token.roles,
    }
