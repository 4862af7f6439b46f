"""Figures as a table: every row with its durability, its ratio to its peer and its target."""

import datetime
import os
import platform
import statistics
from pathlib import Path
from typing import Any

from bench.figures import Goal

DOCUMENT = Path(__file__).parents[1] / "docs" / "reference" / "benchmarks.md"
# The document has one table for all figures against Kafka, and one for each other group.
BEGIN, END = "<!-- table{}: begin -->", "<!-- table{}: end -->"
HEAD = ["load", "side (durability)", "median", "least", "unit", "beside", "vs peer", "target"]
SHOWN = {
    "rate": "{:,.0f}/s",
    "per_core": "{:,.0f}/s/core",
    "least_ms": "least {:,.0f} ms",
    "rate_alone": "alone {:,.0f}/s",
    "p99_us": "p99 {:,.0f} µs",
    "rss_mb": "{:,.0f} MB",
    "left_mb": "{:,.1f} MB left behind",
    "left_files": "{:,.0f} files left behind",
    "added_kb": "{:,.1f} KB each",
    "pss_mb": "{:,.0f} MB with what is shared once",
    "passed_gb": "{:,.1f} GB",
    "as_found_ms": "as found {:.2f}",
    "path_ns": "{:,.0f} ns/message",
    "plain_ns": "plain {:,.0f}",
}

Kept = dict[str, dict[str, list[dict[str, Any]]]]


def render(kept: Kept, goals: dict[str, Goal]) -> str:
    """The table in Markdown."""
    rows = [HEAD, ["---"] * len(HEAD)]
    for name, goal in goals.items():
        by_side = kept.get(name, {})
        compared = {title: _compared(goal, figures) for title, figures in by_side.items()}
        peer = [value for title, value in compared.items() if goal.peer in title]
        for title, figures in by_side.items():
            median = _median(figures)
            least = min(figure["value"] for figure in figures)
            own = compared[title]
            related = peer and peer[0] and own and goal.peer not in title
            ratio = f"{_ratio(goal, own, peer[0]):.1f}x" if related else ""
            rows.append(
                [
                    goal.title,
                    title,
                    _number(median),
                    _number(least),
                    goal.unit,
                    _beside(figures),
                    ratio,
                    _target(goal, title, median),
                ]
            )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def document(table: str, rounds: int, group: str = "") -> None:
    """Replace the document's table of a group by this one."""
    begin, end = (mark.format(f" {group}" if group else "") for mark in (BEGIN, END))
    text = DOCUMENT.read_text()
    before, found, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    assert found, f"the document has no table of {group}"
    today = datetime.datetime.now(datetime.UTC).date()
    note = (
        f"Measured {today} on {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{rounds} interleaved rounds, load average {os.getloadavg()[0]:.1f}."
    )
    DOCUMENT.write_text(f"{before}{begin}\n{note}\n\n{table}\n{end}{after}")


def _median(figures: list[dict[str, Any]]) -> float:
    return statistics.median(float(figure["value"]) for figure in figures)


def _compared(goal: Goal, figures: list[dict[str, Any]]) -> float:
    """What a side is held against its peer by; 0 where nothing is compared."""
    if goal.compared is None:
        return 0.0
    if goal.compared == "value":
        return _median(figures)
    return statistics.median(float(figure["beside"][goal.compared]) for figure in figures)


def _ratio(goal: Goal, own: float, peer: float) -> float:
    """How many times better than its peer a side is."""
    return own / peer if goal.at_least else peer / own


def _beside(figures: list[dict[str, Any]]) -> str:
    parts = []
    for name, form in SHOWN.items():
        values = [figure["beside"][name] for figure in figures if name in figure["beside"]]
        if values:
            parts.append(form.format(statistics.median(values)))
    return ", ".join(parts)


def _target(goal: Goal, title: str, median: float) -> str:
    # The targets are about a node; with fsync only the gain of group commit has one.
    other = goal.peer in title or ("fsync" in title and not goal.at_least)
    if goal.target is None or other:
        return ""
    met = median >= goal.target if goal.at_least else median <= goal.target
    sign = "≥" if goal.at_least else "≤"
    shown = f"{goal.target:,.0f}" if goal.target >= 1_000 else f"{goal.target:g}"
    return f"{sign} {shown} {'met' if met else '**missed**'}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
