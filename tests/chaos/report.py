"""The report of the chaos suite: one page that says what was done and what was found.

Every part adds a line to a file of JSON lines; the page is made from all of them, so that an
interrupted suite still has one.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.checked import Checked

EXAMPLES_MAX = 20
FAILURE_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True)
class PartRun:
    """What one part of the suite did.

    Args:
        part: its name.
        command: what repeats it.
        seed: what its chances were drawn from.
        seconds: how long it took.
        faults: how often each fault happened.
        figures: how much was done.
        checked: what was judged.
        remark: what was left out, or what else there is to say.
        failure: why it did not come to its end; empty if it did.
    """

    part: str
    command: str
    seed: int
    seconds: float
    faults: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, int] = field(default_factory=dict)
    checked: Iterable[Checked] = ()
    remark: str = ""
    failure: str = ""


def add_run(journal: Path, run: PartRun) -> None:
    """Note what a part did."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    checked = list(run.checked)
    anomalies = [anomaly for one in checked for anomaly in one.anomalies]
    line = {
        "at": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
        "part": run.part,
        "command": run.command,
        "seed": run.seed,
        "seconds": round(run.seconds),
        "faults": dict(run.faults),
        "figures": dict(run.figures),
        "checks": [
            [one.name, kind.value, count, one.found[kind]]
            for one in checked
            for kind, count in one.operations.items()
        ],
        "anomalies": len(anomalies),
        "examples": [str(anomaly) for anomaly in anomalies[:EXAMPLES_MAX]],
        "remark": run.remark,
        "failure": run.failure[-FAILURE_CHARACTERS_MAX:],
    }
    with journal.open("a") as file:
        file.write(json.dumps(line) + "\n")


def write_page(journal: Path, page: Path) -> str:
    """Make the page of all runs; the summary line is returned."""
    runs = [json.loads(line) for line in journal.read_text().splitlines()]
    faults, figures = (_sum(runs, key) for key in ("faults", "figures"))
    failures = [run for run in runs if run["failure"]]
    total = (
        f"{sum(faults.values())} faults in {len(runs)} parts, "
        f"{sum(run['anomalies'] for run in runs)} anomalies, "
        f"{len(failures)} parts did not come to their end"
    )
    checks = ("history", "anomaly", "operations checked", "found")
    heads = (
        "ended at (UTC)",
        "part",
        "seed",
        "seconds",
        "faults",
        "anomalies",
        "remark",
        "command",
    )
    page.write_text(
        "\n".join(
            [
                "# Report of the chaos suite",
                "",
                f"{total}.",
                "",
                "## Checks",
                "",
                *_table(checks, _checks(runs)),
                "",
                "## Faults",
                "",
                *_table(("fault", "times"), sorted(faults.items())),
                "",
                "## Load",
                "",
                *_table(("what", "count"), figures.items()),
                "",
                "## Parts",
                "",
                *_table(heads, _rows(runs)),
                "",
                *(f"* {example}" for run in runs for example in run["examples"]),
                *(f"* {run['part']} did not end: {_one_line(run['failure'])}" for run in failures),
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


def _checks(runs: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """Every rule of every history once, with the sums over all parts."""
    totals: dict[tuple[str, str], tuple[int | None, int]] = {}
    for run in runs:
        for name, kind, count, found in run["checks"]:
            checked, so_far = totals.get((name, kind), (None, 0))
            checked = count if checked is None else checked + (count or 0)
            totals[name, kind] = checked, so_far + found
    # Histories stand in the order of their first appearance, and their rules together.
    order = {name: place for place, name in enumerate(dict.fromkeys(name for name, _ in totals))}
    rows = sorted(totals.items(), key=lambda item: order[item[0][0]])
    return [
        (*names, "does not apply" if checked is None else checked, found)
        for names, (checked, found) in rows
    ]


def _rows(runs: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            run["at"],
            run["part"],
            run["seed"],
            run["seconds"],
            sum(run["faults"].values()),
            run["anomalies"],
            _one_line(run["remark"]),
            f"`{run['command']}`",
        )
        for run in runs
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _table(heads: tuple[str, ...], rows: Any) -> list[str]:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return [f"| {' | '.join(str(cell) for cell in line)} |" for line in lines]
