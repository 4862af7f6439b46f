"""PostgreSQL's changes as Debezium tells them and as we do, event by event."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.cdc.follow import Following
from tests.integration.cdc.postgres import PostgresServer
from tests.integration.debezium.capture import Debezium, Event, event, is_last_of_snapshot
from tests.integration.debezium.compare import check, differences
from tests.integration.debezium.postgres_workload import AFTER, BEFORE, LABELS

from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig

pytestmark = [pytest.mark.needs("postgres", "java", "maven"), pytest.mark.timeout(300)]

# Each way of writing values: Debezium's settings and ours.
MODES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "exact": (
        {"decimal.handling.mode": "precise"},
        {"decimal_mode": "precise"},
    ),
    "text": (
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "isostring",
            "binary.handling.mode": "hex",
            "interval.handling.mode": "string",
            "provide.transaction.metadata": "true",
        },
        {
            "decimal_mode": "string",
            "time_mode": "isostring",
            "binary_mode": "hex",
            "interval_mode": "string",
            "transaction_metadata": True,
        },
    ),
    "plain": (
        {
            "decimal.handling.mode": "double",
            "time.precision.mode": "connect",
            "binary.handling.mode": "base64-url-safe",
        },
        {"decimal_mode": "double", "time_mode": "connect", "binary_mode": "base64-url-safe"},
    ),
    "micros": (
        {
            "time.precision.mode": "adaptive_time_microseconds",
            "binary.handling.mode": "base64",
            "tombstones.on.delete": "false",
            "skipped.operations": "t",
            "column.mask.hash.v2.SHA-256.with.salt.pepper": "public.whole.note",
            "column.mask.with.10.chars": "public.pairs.note",
            "column.truncate.to.1.chars": "public.by_index.note",
            "column.exclude.list": "public.defaults.n",
        },
        {
            "decimal_mode": "precise",
            "time_mode": "adaptive_time_microseconds",
            "tombstones": False,
            "skipped_operations": ("t",),
            "mask_columns": {
                "public.whole.note": "hash",
                "public.pairs.note": "redact",
                "public.by_index.note": "truncate:1",
            },
            "mask_salt": "pepper",
            "exclude_columns": ("public.defaults.n",),
        },
    ),
}
DATABASE = "shop"


def _engine(server: PostgresServer, name: str, given: Mapping[str, str]) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        "database.port": str(server.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": DATABASE,
        "slot.name": f"theirs_{name}",
        "publication.name": f"theirs_{name}",
        "publication.autocreate.mode": "filtered",
        "publish.via.partition.root": "true",
        "schema.include.list": "public",
        "message.key.columns": "public.by_index:code",
        "skipped.operations": "none",
        **given,
    }


def _following(
    server: PostgresServer, name: str, given: Mapping[str, Any], folder: Path
) -> Following:
    config = PostgresCdcConfig(
        host="127.0.0.1",
        port=server.port,
        database=DATABASE,
        name=name,
        slot_name=f"ours_{name}",
        publication_name=f"ours_{name}",
        topic_routing="{name}.{schema}.{table}",
        key_columns={"public.by_index": ("code",)},
        **given,
    )
    folder.mkdir()
    return Following(config, folder)


def _stream(session: psycopg.Connection[tuple[Any, ...]], debezium: Debezium) -> None:
    """Everything that comes after the snapshot.

    Debezium asks the server what a table is like now when it reads an old change: before a table
    is altered it has to be through with what it was.
    """
    for number, statement in enumerate(AFTER):
        if statement.startswith("ALTER"):
            mark = f"before {number}"
            session.execute(f"SELECT pg_logical_emit_message(false, '{mark}', '')".encode())
            debezium.wait(partial(_is_message, mark))
        session.execute(statement.encode())


def _is_message(prefix: str, each: Event) -> bool:
    return bool(each["key"] == {"prefix": prefix})


def test_events_are_those_of_debezium_but_for_the_admitted_differences(tmp_path: Path) -> None:
    with PostgresServer() as server:
        server.run(f"CREATE DATABASE {DATABASE}")
        with server.connect(DATABASE) as session:
            for statement in BEFORE:
                session.execute(statement.encode())
        engines = {name: _engine(server, name, given) for name, (given, _) in MODES.items()}
        (tmp_path / "theirs").mkdir()
        with Debezium(tmp_path / "theirs", engines) as debezium:
            following = {
                name: _following(server, name, given, tmp_path / name)
                for name, (_, given) in MODES.items()
            }
            ours = {name: each.all() for name, each in following.items()}
            debezium.wait(is_last_of_snapshot)
            with server.connect(DATABASE) as session:
                _stream(session, debezium)
            for name, each in following.items():
                ours[name] += each.all()
                each.follower.close()
            theirs = debezium.wait(partial(_is_message, "end"))

    found = [
        difference
        for name in MODES
        for difference in differences(
            [event(name, told) for told in ours[name]], theirs[name], LABELS
        )
    ]
    check("PostgreSQL", found)
