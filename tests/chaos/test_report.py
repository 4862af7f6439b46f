"""Every part of the suite is on one page, with every rule of every history."""

import json
from enum import StrEnum
from pathlib import Path

import pytest
from tests.chaos import history as log
from tests.chaos import transaction_history as transactions
from tests.chaos.catalogue_history import CatalogueHistory, CatalogueKind
from tests.chaos.checked import (
    Checked,
    check_catalogue,
    check_log,
    check_messages,
    check_transactions,
)
from tests.chaos.history import Anomaly, History
from tests.chaos.queue_history import Promise, QueueHistory, QueueKind
from tests.chaos.report import PartRun, add_run, write_page
from tests.chaos.transaction_ops import TransactionHistory

STREAM = ("t", 0)


def everything() -> list[Checked]:
    return [
        check_log(History(), ()),
        *check_transactions(TransactionHistory(), []),
        check_messages(QueueHistory("q", "AMQP"), Promise()),
        *check_catalogue([CatalogueHistory("u", "users")]),
    ]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("Kafka", log.Kind),
        ("Kafka transactions", transactions.Kind),
        ("Kafka transactions, their records", log.Kind),
        ("AMQP", QueueKind),
        ("catalogue: users", CatalogueKind),
    ],
)
def test_every_rule_of_a_history_is_counted(name: str, kinds: type[StrEnum]) -> None:
    [checked] = [one for one in everything() if one.name == name]
    assert set(checked.operations) == set(kinds)


def test_anomalies_of_transactions_are_told_apart_from_those_of_their_records() -> None:
    torn = Anomaly(transactions.Kind.TORN, STREAM, "")
    lost = Anomaly(log.Kind.LOST, STREAM, "")
    own, records = check_transactions(TransactionHistory(), [torn, lost])
    assert (own.anomalies, records.anomalies) == ([torn], [lost])


def test_the_page_sums_operations_and_anomalies_over_all_parts(tmp_path: Path) -> None:
    journal, page = tmp_path / "runs.jsonl", tmp_path / "report.md"
    lost = Anomaly(log.Kind.LOST, STREAM, "v7")
    for number in (1, 2):
        checked = Checked("Kafka", {log.Kind.LOST: 10, log.Kind.STALE: None}, [lost])
        run = PartRun(f"part {number}", "again", 5, 1.0, {"pause": 3}, {"sent": 7}, [checked])
        add_run(journal, run)
    total = write_page(journal, page)
    text = page.read_text()
    assert total.startswith("6 faults in 2 parts, 2 anomalies, 0 parts")
    assert f"| Kafka | {log.Kind.LOST} | 20 | 2 |" in text
    assert f"| Kafka | {log.Kind.STALE} | does not apply | 0 |" in text
    assert "| pause | 6 |" in text
    assert "| sent | 14 |" in text
    assert text.count("`again`") == 2


def test_a_part_that_did_not_end_is_on_the_page_too(tmp_path: Path) -> None:
    journal, page = tmp_path / "runs.jsonl", tmp_path / "report.md"
    add_run(journal, PartRun("part 1", "again", 5, 1.0, failure="no progress\nafter a pause"))
    total = write_page(journal, page)
    assert total.endswith("1 parts did not come to their end")
    assert "part 1 did not end: no progress after a pause" in page.read_text()
    assert json.loads(journal.read_text())["seed"] == 5
