"""``mainstem kafka-apis``: which of Kafka's client-facing APIs a broker serves, and how far."""

import asyncio
from typing import Annotated

import typer

from mainstem.cli.access import Access
from mainstem.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, OutputForm
from mainstem.cli.render import Output, show_rows

# Keys of Kafka 4.2 that only brokers and controllers call, or that were retired.
NOT_FOR_CLIENTS = frozenset(
    {*range(4, 8), 27, *range(52, 55), 56, 58, 59, 62, 63, 67, 70, 73, *range(82, 88)}
)
API_KEY_MAX = 92


def client_facing() -> dict[int, str]:
    """Key and name of every API that a client may call."""
    from mainstem.wire.kafka import codec

    return {key: codec.NAMES[key] for key in range(API_KEY_MAX + 1) if key not in NOT_FOR_CLIENTS}


def kafka_apis(
    missing: Annotated[
        bool, typer.Option("--missing", help="List only what is not served.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputForm = Output.TABLE,
) -> None:
    """Show which Kafka APIs a broker serves and in which versions."""
    served = asyncio.run(_served(bootstrap))
    rows: list[dict[str, object]] = []
    for key, name in client_facing().items():
        versions = served.get(key)
        if missing and versions is not None:
            continue
        rows.append(
            {
                "key": key,
                "name": name,
                "served": versions is not None,
                "min_version": versions[0] if versions else None,
                "max_version": versions[1] if versions else None,
            }
        )
    show_rows(rows, output, columns=["key", "name", "served", "min_version", "max_version"])
    if output is Output.TABLE:
        count = len(served.keys() & client_facing().keys())
        print(f"\n{count} of {len(client_facing())} client-facing APIs are served.")


async def _served(bootstrap: Access) -> dict[int, tuple[int, int]]:
    from mainstem.client.cluster import parse_address
    from mainstem.client.connection import Connection

    host, port = parse_address(bootstrap.bootstrap.split(",", maxsplit=1)[0])
    connection = await Connection.open(host, port, bootstrap.settings())
    connection.close()
    return connection.versions
