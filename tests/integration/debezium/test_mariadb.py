"""MariaDB's changes as Debezium tells them and as we do, event by event."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.integration.cdc.follow import Following
from tests.integration.cdc_mysql.mariadb import MariadbServer
from tests.integration.debezium.capture import Debezium, Event, event, is_last_of_snapshot
from tests.integration.debezium.compare import check, differences
from tests.integration.debezium.mariadb_workload import AFTER, BEFORE, LABELS

from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig

pytestmark = [pytest.mark.needs("mariadb", "java", "maven"), pytest.mark.timeout(300)]

DATABASE = "shop"
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
            "provide.transaction.metadata": "true",
        },
        {
            "decimal_mode": "string",
            "time_mode": "isostring",
            "binary_mode": "hex",
            "transaction_metadata": True,
        },
    ),
    "plain": (
        {
            "decimal.handling.mode": "double",
            "time.precision.mode": "connect",
            "binary.handling.mode": "base64-url-safe",
            "bigint.unsigned.handling.mode": "long",
            "tombstones.on.delete": "false",
            "skipped.operations": "t",
            "column.mask.hash.v2.SHA-256.with.salt.pepper": f"{DATABASE}.whole.note",
            "column.mask.with.10.chars": f"{DATABASE}.pairs.note",
            "column.truncate.to.1.chars": f"{DATABASE}.by_code.note",
            "column.exclude.list": f"{DATABASE}.defaults.n",
        },
        {
            "decimal_mode": "double",
            "time_mode": "connect",
            "binary_mode": "base64-url-safe",
            "tombstones": False,
            "skipped_operations": ("t",),
            "mask_columns": {
                f"{DATABASE}.whole.note": "hash",
                f"{DATABASE}.pairs.note": "redact",
                f"{DATABASE}.by_code.note": "truncate:1",
            },
            "mask_salt": "pepper",
            "exclude_columns": (f"{DATABASE}.defaults.n",),
        },
    ),
}


def _engine(server: MariadbServer, number: int, given: Mapping[str, str]) -> dict[str, str]:
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.port": str(server.port),
        "database.user": "root",
        "database.password": "",
        "database.server.id": str(7_000 + number),
        "database.include.list": DATABASE,
        "message.key.columns": f"{DATABASE}.by_code:code",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "include.schema.changes": "false",
        "skipped.operations": "none",
        **given,
    }


def _following(
    server: MariadbServer, name: str, given: Mapping[str, Any], folder: Path
) -> Following:
    config = MysqlCdcConfig(
        host="127.0.0.1",
        port=server.port,
        database=DATABASE,
        name=name,
        topic_routing="{name}.{database}.{table}",
        key_columns={f"{DATABASE}.by_code": ("code",)},
        **given,
    )
    folder.mkdir()
    return Following(config, folder)


def test_events_are_those_of_debezium_but_for_the_admitted_differences(tmp_path: Path) -> None:
    with MariadbServer() as server:
        server.run(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        server.run(*BEFORE, database=DATABASE)
        engines = {
            name: _engine(server, number, given)
            for number, (name, (given, _)) in enumerate(MODES.items())
        }
        (tmp_path / "theirs").mkdir()
        with Debezium(tmp_path / "theirs", engines) as debezium:
            following = {
                name: _following(server, name, given, tmp_path / name)
                for name, (_, given) in MODES.items()
            }
            ours = {name: each.all() for name, each in following.items()}
            debezium.wait(is_last_of_snapshot)
            time.sleep(1.1)  # the log knows seconds only: changes are not of the snapshot's
            server.run(*AFTER, database=DATABASE)
            for name, each in following.items():
                ours[name] += each.all()
                each.follower.close()
            theirs = debezium.wait(_is_end)

    found = [
        difference
        for name in MODES
        for difference in differences(
            _until_end([event(name, told) for told in ours[name]]),
            _until_end(theirs[name]),
            LABELS,
        )
    ]
    check("MariaDB", found)


def _is_end(event: Event) -> bool:
    return bool(event["key"] == {"id": 100})


def _until_end(events: list[Event]) -> list[Event]:
    """Without what follows the last row: its transaction's end may come too late for us."""
    return events[: next(at for at, each in enumerate(events) if _is_end(each))]
