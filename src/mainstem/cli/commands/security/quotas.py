"""``mainstem quota``: rate limits of users, clients and addresses."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from mainstem.cli.errors import UsageFailure
from mainstem.cli.login.admin_session import with_admin
from mainstem.cli.output.render import Output, show_confirmation, show_rows
from mainstem.cli.parameters.duration import parse_amount
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

app = typer.Typer(help="Quotas of users, clients and addresses.", no_args_is_help=True)

Parts = Annotated[
    list[str],
    typer.Argument(
        metavar="KIND=NAME...",
        help="user=alice, client-id=app, both, or ip=10.0.0.7; user alone: the default of users.",
    ),
]


@app.command("set")
def set_limits(
    entity: Parts,
    limit: Annotated[
        list[str],
        typer.Option(
            "--limit",
            "-l",
            metavar="NAME=RATE",
            help="producer_byte_rate, consumer_byte_rate, request_rate, ...; may be repeated.",
        ),
    ],
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Set limits of an entity; RATE is per second, such as 500 or 10MB. Other limits stay."""
    from mainstem.client.administration.quotas import entity_text

    who = parse_entity(entity)
    limits: dict[str, float | None] = {}
    for text in limit:
        name, equals, rate = text.partition("=")
        if not (name and equals):
            raise UsageFailure("a limit is a name and a rate", subject=text,
                               remedy="--limit producer_byte_rate=10MB")  # fmt: skip
        limits[name.replace("-", "_")] = parse_amount(rate)
    with_admin(bootstrap, timeout, lambda admin: admin.quotas.alter(who, limits))
    show_confirmation(f"limited {entity_text(who)}", {"entity": who, "limits": limits}, output)


@app.command("list")
def list_limits(
    entity: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KIND=NAME]...", help="Only limits of this user, client or ip."),
    ] = None,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """List limits."""
    from mainstem.client.administration.quotas import entity_text

    who = parse_entity(entity) if entity else None
    found = with_admin(bootstrap, timeout, lambda admin: admin.quotas.find(who))
    if output is Output.TABLE:
        lines = [
            {"entity": entity_text(quota.entity), "limit": name, "per_second": rate}
            for quota in found
            for name, rate in sorted(quota.limits.items())
        ]
        show_rows(lines, output, columns=["entity", "limit", "per_second"])
        return
    show_rows([{"entity": quota.entity, "limits": quota.limits} for quota in found], output)


@app.command("delete")
def delete(
    entity: Parts,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", "-l", metavar="NAME", help="Only this one; may be repeated."),
    ] = None,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if there is none.")
    ] = False,
    timeout: TimeoutSeconds = DEFAULT_TIMEOUT_S,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Delete limits of an entity: all, or some."""
    from mainstem.client.administration.quotas import entity_text

    who = parse_entity(entity)
    wanted = {name.replace("-", "_") for name in limit or []}

    async def act(admin: "Admin") -> list[str]:
        held = [
            name for quota in await admin.quotas.find(who, strict=True) for name in quota.limits
        ]
        gone = sorted(name for name in held if not wanted or name in wanted)
        if gone:
            await admin.quotas.alter(who, dict.fromkeys(gone))
        return gone

    gone = with_admin(bootstrap, timeout, act)
    if (not gone or wanted - set(gone)) and not if_exists:
        raise InvalidRequest(
            ErrorCode.UNKNOWN_RESOURCE,
            "the limit does not exist",
            subject=entity_text(who),
            remedy="list them: mainstem quota list",
        )
    row = {"entity": who, "deleted": gone}
    show_confirmation(f"deleted {', '.join(gone) or 'nothing'} of {entity_text(who)}", row, output)


def parse_entity(parts: Sequence[str]) -> dict[str, str | None]:
    """Parses ``user=alice client-id=app``; a kind alone is the default of that kind.

    Raises:
        UsageFailure: a kind is unknown or given twice.
    """
    from mainstem.client.administration.quotas import ENTITY_KINDS

    found: dict[str, str | None] = {}
    for part in parts:
        kind, equals, name = part.partition("=")
        if kind not in ENTITY_KINDS or kind in found or (equals and not name):
            raise UsageFailure(
                "not an entity of quotas",
                subject=part,
                remedy="user=NAME, client-id=NAME, both, or ip=ADDRESS",
            )
        found[kind] = name if equals else None
    return found
