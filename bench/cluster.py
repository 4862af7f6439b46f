"""A cluster on one machine: what copies cost, and how long writing stands still after a fault.

    python bench/cluster.py                     all rows
    python bench/cluster.py --only seal,shards  some of them
    python bench/cluster.py --quick             few rounds, to see that everything runs
    python bench/cluster.py --document          and put the table into docs/reference/benchmarks.md

Prints a table with every row's target, and leaves the samples in ``bench/results``.
"""

import argparse
import datetime
import json
import os
import platform
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.cluster_costs import Row, copies, shards, streams
from bench.cluster_faults import fail_over, seal
from bench.measure import load_average, settle
from bench.progress import RESULTS
from bench.table import DOCUMENT

BEGIN, END = "<!-- cluster: begin -->", "<!-- cluster: end -->"
HEAD = ["load", "median", "unit", "beside", "target"]
# What is measured, how often, and how often at least.
ROWS: dict[str, tuple[Callable[[int], list[Row]], int, int]] = {
    "copies": (copies, 11, 1),
    "normal": (partial(fail_over, preset="normal"), 40, 2),
    "fast": (partial(fail_over, preset="fast"), 40, 2),
    "seal": (seal, 20, 3),
    "streams": (streams, 4, 1),
    "shards": (shards, 5, 1),
}


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(ROWS), help="rows, with commas between")
    parser.add_argument("--rounds", type=int, default=0, help="how often, for every row")
    parser.add_argument("--quick", action="store_true", help="as few rounds as show anything")
    parser.add_argument("--document", action="store_true", help="put the table into the docs")
    options = parser.parse_args()
    # Nodes lead their own process groups: a polite end must pass through our clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = options.only.split(",")
    if unknown := set(names) - set(ROWS):
        sys.stderr.write(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(ROWS)}\n")
        return 2
    began = load_average()
    found: list[Row] = []
    for name in names:
        measure, many, few = ROWS[name]
        settle()
        rows = measure(options.rounds or (few if options.quick else many))
        found += rows
        for row in rows:
            sys.stderr.write(f"{name:8} {row.title}: {row.value:.3g} {row.unit} ({row.beside})\n")
    table = render(found)
    print(table)
    print(f"\nload average {began:.1f} before, {load_average():.1f} after")
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    RESULTS.mkdir(exist_ok=True)
    kept = json.dumps([asdict(row) for row in found], indent=1)
    (RESULTS / f"cluster-{stamp}.json").write_text(kept)
    if options.document:
        document(table, began)
    return 0


def render(rows: list[Row]) -> str:
    """The table in Markdown."""
    lines = [HEAD, ["---"] * len(HEAD)]
    lines += [[row.title, f"{row.value:.3g}", row.unit, row.beside, _target(row)] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    sign = "≥" if row.at_least else "≤"
    return f"{sign} {row.target:g} {'met' if row.is_met else '**missed**'}"


def document(table: str, load_before: float) -> None:
    """Replace the cluster's table in the document by this one."""
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    today = datetime.datetime.now(datetime.UTC).date()
    note = (
        f"Measured {today} on {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load average {load_before:.1f} before."
    )
    DOCUMENT.write_text(f"{before}{BEGIN}\n{note}\n\n{table}\n{END}{after}")


if __name__ == "__main__":
    sys.exit(main())
