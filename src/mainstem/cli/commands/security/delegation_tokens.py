"""``mainstem delegation-token``: Kafka's delegation tokens (KIP-48)."""

from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.commands.security.resource_options import principal
from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.access import read_secret
from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.render import Output, show_confirmation, show_one, show_rows
from mainstem.cli.parameters.duration import parse_duration_ms
from mainstem.cli.parameters.shared import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    OutputForm,
    TimeoutSeconds,
)
from mainstem.cli.parameters.timestamp import format_timestamp
from mainstem.model.errors import ErrorCode, InvalidRequest

if TYPE_CHECKING:
    from mainstem.client.admin import Admin
    from mainstem.client.administration.delegation_tokens import DelegationTokenInfo

app = typer.Typer(help="Delegation tokens, as in Kafka.", no_args_is_help=True)

COLUMNS = ["id", "owner", "requester", "renewers", "issued", "expires", "ends"]

Id = Annotated[str | None, typer.Argument(metavar="[ID]", help="Id of a token that you may see.")]
HmacFile = Annotated[
    str | None,
    typer.Option("--hmac-file", metavar="FILE", help="Instead of the id: a file with its HMAC."),
]
Period = Annotated[str | None, typer.Option("--period", help="How long from now: 90s, 12h, 3d.")]


@app.command("create")
def create(
    owner: Annotated[str | None, typer.Option("--owner", help="Owner, if not yourself.")] = None,
    renewer: Annotated[
        list[str] | None,
        typer.Option("--renewer", help="Another user who may renew it; may be repeated."),
    ] = None,
    lifetime: Annotated[
        str | None, typer.Option("--lifetime", help="Maximum lifetime, renewals included: 12h, 3d.")
    ] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Create a token: clients log in by SCRAM with its id as user and its HMAC as password."""
    made = with_admin(
        bootstrap,
        timeout,
        lambda admin: admin.delegation_tokens.create(
            owner=principal(owner) if owner else None,
            renewers=[principal(name) for name in renewer or []],
            lifetime_ms=-1 if lifetime is None else parse_duration_ms(lifetime),
        ),
    )
    show_one(_facts(made) | {"hmac": made.hmac}, output)


@app.command("describe")
def describe(
    owner: Annotated[
        list[str] | None, typer.Option("--owner", help="Only tokens of this user; may be repeated.")
    ] = None,
    hmac: Annotated[bool, typer.Option("--hmac", help="Also show the secrets.")] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show the tokens that you may see."""
    owners = [principal(name) for name in owner] if owner else None
    found = with_admin(bootstrap, timeout, lambda admin: admin.delegation_tokens.find(owners))
    rows = [_facts(token) | ({"hmac": token.hmac} if hmac else {}) for token in found]
    show_rows(rows, output, columns=[*COLUMNS, *(["hmac"] if hmac else [])])


@app.command("renew")
def renew(
    token_id: Id = None,
    hmac_file: HmacFile = None,
    period: Period = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Renew a token, by default for a day, at most until its maximum lifetime."""
    period_ms = -1 if period is None else parse_duration_ms(period)

    async def act(admin: "Admin") -> int:
        hmac = await _hmac(admin, token_id, hmac_file)
        return await admin.delegation_tokens.renew(hmac, period_ms)

    until = format_timestamp(with_admin(bootstrap, timeout, act))
    row = {"renewed": token_id, "expires": until}
    show_confirmation(f"renewed {token_id or 'the token'} until {until}", row, output)


@app.command("expire")
def expire(
    token_id: Id = None,
    hmac_file: HmacFile = None,
    period: Period = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Expire a token, at once or after a time."""
    period_ms = -1 if period is None else parse_duration_ms(period)

    async def act(admin: "Admin") -> int:
        hmac = await _hmac(admin, token_id, hmac_file)
        return await admin.delegation_tokens.expire(hmac, period_ms)

    when = format_timestamp(with_admin(bootstrap, timeout, act))
    row = {"expired": token_id, "expires": when}
    show_confirmation(f"{token_id or 'the token'} expires {when}", row, output)


async def _hmac(admin: "Admin", token_id: str | None, hmac_file: str | None) -> str:
    if (token_id is None) == (hmac_file is None):
        raise UsageFailure("no token is given", remedy="its id, or --hmac-file FILE")
    if hmac_file is not None:
        return read_secret(hmac_file)
    for token in await admin.delegation_tokens.find():
        if token.id == token_id:
            return token.hmac
    raise InvalidRequest(
        ErrorCode.UNKNOWN_TOKEN,
        "there is no such token, or you may not see it",
        subject=str(token_id),
        remedy="list them: mainstem delegation-token describe",
    )


def _facts(token: "DelegationTokenInfo") -> dict[str, object]:
    return {
        "id": token.id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": format_timestamp(token.issued_ms),
        "expires": format_timestamp(token.expires_ms),
        "ends": format_timestamp(token.max_ms),
    }
