"""``mainstem kafka-apis``: which of Kafka's client-facing APIs are served, and what shows it."""

import asyncio
from typing import Annotated

import typer

from mainstem.cli.login.access import ConnectionOptions
from mainstem.cli.output.render import Output, show_rows
from mainstem.cli.parameters.shared import DEFAULT_BOOTSTRAP, Bootstrap, OutputForm

COLUMNS = ["key", "name", "versions", "served", "note"]
"""The note is the test that shows it, or the reason why it is not served."""

Versions = tuple[int, int]


def kafka_apis(
    missing: Annotated[
        bool, typer.Option("--missing", help="List only what is not served.")
    ] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="What this version serves, without asking a broker.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show which Kafka APIs a broker serves, in which versions, and which test proves it."""
    from mainstem.protocols.kafka.api_coverage import scorecard

    scored = scorecard()
    served: dict[int, Versions] = {}
    if offline:
        for api in scored:
            if api.min_version is not None and api.max_version is not None:
                served[api.key] = (api.min_version, api.max_version)
    else:
        served = asyncio.run(_served(bootstrap))
    rows: list[dict[str, object]] = []
    for api in scored:
        versions = served.get(api.key)
        if missing and versions is not None:
            continue
        rows.append(
            {
                "key": api.key,
                "name": api.name,
                "served": versions is not None,
                "versions": "" if versions is None else f"{versions[0]}-{versions[1]}",
                "min_version": versions[0] if versions else None,
                "max_version": versions[1] if versions else None,
                "note": _note(api.proof, api.reason, is_served=versions is not None),
                "test": api.proof,
                "reason": api.reason if versions is None else None,
            }
        )
    show_rows(rows, output, columns=COLUMNS)
    if output is Output.TABLE:
        count = len(served.keys() & {api.key for api in scored})
        print(f"\n{count} of {len(scored)} client-facing APIs are served.")


def _note(proof: str | None, reason: str | None, *, is_served: bool) -> str:
    return (proof if is_served else reason) or ""


async def _served(bootstrap: ConnectionOptions) -> dict[int, Versions]:
    from mainstem.client.cluster import parse_address
    from mainstem.client.connection import Connection

    host, port = parse_address(bootstrap.bootstrap.split(",", maxsplit=1)[0])
    connection = await Connection.open(host, port, bootstrap.settings())
    connection.close()
    return connection.versions
