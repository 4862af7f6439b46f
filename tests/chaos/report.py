"""The report of the chaos suite: one page that says what was done and what was found.

Every run of faults adds a line to a file of JSON lines; the page is made from all of them, so that
an interrupted suite still has one.
"""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.chaos.catalogue_history import CatalogueKind
from tests.chaos.cluster import FaultRun
from tests.chaos.history import Kind
from tests.chaos.queue_history import QueueKind

_CHECKED = (("Kafka", Kind), ("AMQP and MQTT", QueueKind), ("Catalogue", CatalogueKind))


def add_run(journal: Path, run: FaultRun, *, seed: int, seconds: float) -> None:
    """Note a run of faults."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    line = {
        "at": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "seed": seed,
        "seconds": round(seconds),
        "faults": dict(run.done),
        "figures": run.histories.figures(),
        "anomalies": dict(Counter(anomaly.kind.value for anomaly in run.anomalies)),
        "examples": [str(anomaly) for anomaly in run.anomalies[:20]],
    }
    with journal.open("a") as file:
        file.write(json.dumps(line) + "\n")


def write_page(journal: Path, page: Path) -> str:
    """Make the page of all runs; the summary line is returned."""
    runs = [json.loads(line) for line in journal.read_text().splitlines()]
    faults, figures, anomalies = (_sum(runs, key) for key in ("faults", "figures", "anomalies"))
    total = (
        f"{sum(faults.values())} faults in {len(runs)} runs, {sum(anomalies.values())} anomalies"
    )
    page.write_text(
        "\n".join(
            [
                "# Report of the chaos suite",
                "",
                f"{total}.",
                "",
                "## Faults",
                "",
                *_table(("fault", "times"), sorted(faults.items())),
                "",
                "## Load",
                "",
                *_table(("what", "count"), figures.items()),
                "",
                "## Checks",
                "",
                *_table(("history", "anomaly", "found"), _checks(anomalies)),
                "",
                "## Runs",
                "",
                *_table(("ended at (UTC)", "seed", "seconds", "faults", "anomalies"), _rows(runs)),
                "",
                *(f"* {example}" for run in runs for example in run["examples"]),
            ]
        )
        + "\n"
    )
    return total


def _sum(runs: list[dict[str, Any]], key: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run[key])
    return total


def _checks(anomalies: Counter[str]) -> list[tuple[object, ...]]:
    return [
        (history, kind.value, anomalies[kind.value])
        for history, kinds in _CHECKED
        for kind in kinds
    ]


def _rows(runs: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            run["at"],
            run["seed"],
            run["seconds"],
            sum(run["faults"].values()),
            sum(run["anomalies"].values()),
        )
        for run in runs
    ]


def _table(heads: tuple[str, ...], rows: Any) -> list[str]:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]
