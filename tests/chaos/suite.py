"""The long chaos suite: kill -9, transactions, faults of a cluster, loss of power, each one judged.

Parts that passed are remembered in a state file until all have, so that an interrupted run goes on
where it stopped; ``--fresh`` begins again. Every part adds to one report. ``--target kafka`` lets
Apache Kafka be killed instead.
"""

import argparse
import shlex
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.chaos.faults import LONG_FAULTS
from tests.chaos.parts import Part, Verdict, run_parts, say
from tests.chaos.report import PartRun, add_run, write_page
from tests.chaos.suite_parts import (
    STATE,
    PartResult,
    harsh_transactions,
    kills,
    lie,
    lose_power,
    mixed_versions,
    transactions,
    transactions_of_several,
    trouble,
)

from mainstem.testing.server_process import ServerFailed

TRANSACTIONS_PER_PART = 2_000
FAULTS_PER_PART = 20

Work = Callable[[], PartResult]


def main() -> int:
    options = option_parser().parse_args()
    # Servers and mounts must be cleaned up when the suite is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    named = parts(options)
    if options.only:
        chosen = {name: part for name, part in named.items() if options.only in name}
        if not chosen:
            say(f"no part is called {options.only!r}; there are:\n" + "\n".join(named))
            return 2
        return run_parts(chosen, STATE / "only.json", fresh=True, say=say)
    state = STATE / f"{options.target}.json"
    if options.fresh or not state.exists():
        _journal(options.target).unlink(missing_ok=True)
    return run_parts(named, state, fresh=options.fresh, say=say)


def parts(options: argparse.Namespace) -> dict[str, Part]:
    """What the suite consists of, in order."""
    return {
        name: partial(_run, options, name, seed, work)
        for name, (seed, work) in _works(options).items()
    }


def _works(options: argparse.Namespace) -> dict[str, tuple[int, Work]]:
    """The parts by name, each with its seed."""
    target, first = options.target, options.seed
    is_ours = target == "mainstem"
    made: dict[str, tuple[int, Work]] = {}
    if options.rounds:
        name = f"kill -9, {options.rounds} rounds, seed {first}"
        made[name] = first, partial(kills, target, options.rounds, first)
    for seed, count in _shares(options.transactions, TRANSACTIONS_PER_PART, first):
        made[f"{count} transactions, seed {seed}"] = (
            seed,
            partial(transactions, target, count, seed),
        )
    faults = options.cluster_faults if is_ours else 0
    for seed, count in _shares(faults, FAULTS_PER_PART, first):
        name = f"{count} faults in a cluster of three, seed {seed}"
        made[name] = seed, partial(trouble, count, seed)
    if faults:
        made["faults that last"] = first, partial(trouble, len(LONG_FAULTS), first, LONG_FAULTS)
        count = min(faults, FAULTS_PER_PART)
        made[f"{count} faults in a cluster of mixed versions, seed {first}"] = (
            first,
            partial(mixed_versions, count, first),
        )
    if options.transactions and is_ours:
        count = min(options.transactions, TRANSACTIONS_PER_PART)
        made[f"{count} transactions in a cluster of three, seed {first}"] = (
            first,
            partial(transactions_of_several, count, first),
        )
        made[f"{count} transactions under partitions and power loss, seed {first}"] = (
            first,
            partial(harsh_transactions, count, first),
        )
    rounds = options.power_rounds if is_ours else 0
    for number in range(rounds):
        made[f"loss of power {number + 1}"] = first, lose_power
    if rounds:
        made["a disk that skips syncs"] = first, lie
    return made


def _shares(total: int, most: int, first_seed: int) -> list[tuple[int, int]]:
    """Seed and count of every part, none larger than ``most``."""
    return [
        (first_seed + number, min(most, total - number * most))
        for number in range(-(-total // most))
    ]


def _run(options: argparse.Namespace, name: str, seed: int, work: Work) -> Verdict:
    """Run one part and add it to the report, whether it comes to its end or not."""
    began = time.monotonic()
    failure = ""
    try:
        result = work()
    except (AssertionError, ServerFailed) as stall:  # the parts that follow are tried all the same
        failure = str(stall)
        result = PartResult(failure, is_sound=False)
    run = PartRun(
        name,
        command_of(options, name),
        seed,
        time.monotonic() - began,
        result.faults,
        result.figures,
        result.checked,
        remark=result.remark,
        failure=failure,
    )
    journal, page = _journal(options.target), STATE / f"{_prefix(options.target)}report.md"
    add_run(journal, run)
    say(f"{write_page(journal, page)}: {page}")
    return result.has_passed, result.words


def command_of(options: argparse.Namespace, name: str) -> str:
    """What repeats one part."""
    usual = vars(option_parser().parse_args([]))
    words = [
        f"--{key.replace('_', '-')} {value}"
        for key, value in vars(options).items()
        if key not in ("only", "fresh") and value != usual[key]
    ]
    return " ".join(["scripts/chaos", *words, "--only", shlex.quote(name)])


def _journal(target: str) -> Path:
    return STATE / f"{_prefix(target)}runs.jsonl"


def _prefix(target: str) -> str:
    return "" if target == "mainstem" else f"{target}-"


def option_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often to kill under load")
    parser.add_argument("--transactions", type=int, default=10_000, help="under all faults")
    parser.add_argument(
        "--cluster-faults",
        type=int,
        default=300,
        help="of every kind, in a cluster",
    )
    parser.add_argument("--power-rounds", type=int, default=5, help="how often to cut the power")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", choices=("mainstem", "kafka"), default="mainstem")
    parser.add_argument("--fresh", action="store_true", help="forget what has passed before")
    parser.add_argument("--only", default="", help="the parts whose names contain this")
    return parser


if __name__ == "__main__":
    sys.exit(main())
