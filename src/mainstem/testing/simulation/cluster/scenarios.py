"""Runs many scenarios of ``simulator`` and stores the results, so that a run can be resumed.

    python -m mainstem.testing.simulation.cluster.scenarios --seed 1 --hours 20 --keep runs.jsonl

Guarantees: a scenario in the file is not run again as long as the source files that scenarios may
import are unchanged; a violation is stored with its seed, printed at the end, and makes the command
fail, while the other scenarios continue. With several workers the traces are the same, and so is
the order of the output; the file, which only the parent process writes, is in the order in which
scenarios ended. Workers end when the process that started them does.
"""

import argparse
import gc
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import msgspec

import mainstem
from mainstem.testing.simulation.cluster.simulator import SCENARIO_S, run_seed
from mainstem.testing.simulation.parent_process import end_with, end_with_pool

POLICIES: Final = ("written", "fsync")
# Packages that no scenario imports: changes there do not affect scenarios.
NOT_SIMULATED: Final = ("cli", "client", "pipelines", "protocols", "wire")


class ScenarioResult(msgspec.Struct, frozen=True):
    """Result of one scenario."""

    source: str
    seed: int
    seconds: float
    trace: str
    cpu_s: float
    counts: dict[str, int]
    violation: str = ""


def source() -> str:
    """A digest of the source files that scenarios may import."""
    digest = blake2b(digest_size=8)
    root = Path(mainstem.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).parts[0] not in NOT_SIMULATED:
            digest.update(path.read_bytes())
    return digest.hexdigest()


SOURCE: Final = source()
_result_decoder = msgspec.json.Decoder(ScenarioResult)


def run_scenario(seed: int, seconds: float) -> ScenarioResult:
    """Run one scenario; a violation is in the result."""
    began_s = time.process_time()
    gc.collect()
    try:
        sim = run_seed(seed, seconds, policy=POLICIES[seed % 2])
    except Exception as error:  # noqa: BLE001 - any exception is a violation
        sys.stderr.write("".join(traceback.format_exception(error)))
        took_s = time.process_time() - began_s
        return ScenarioResult(
            SOURCE, seed, seconds, "", took_s, {}, f"{type(error).__name__}: {error}"
        )
    counts = {**sim.counts, "acknowledged": len(sim.clients.acked)}
    took_s = time.process_time() - began_s
    return ScenarioResult(SOURCE, seed, seconds, sim.trace.digest, took_s, counts)


def run_scenarios(
    seeds: range, seconds: float, keep: Path | None, workers: int = 1
) -> Iterator[ScenarioResult]:
    """The results of these seeds: from the file if it contains them, otherwise by running them."""
    kept: dict[int, ScenarioResult] = {}
    if keep is not None and keep.exists():
        for line in keep.read_bytes().splitlines():
            result = _result_decoder.decode(line)
            if (result.source, result.seconds, result.violation) == (SOURCE, seconds, ""):
                kept[result.seed] = result
    ended = _live([seed for seed in seeds if seed not in kept], seconds, workers)
    for seed in seeds:
        while seed not in kept:
            result = next(ended)
            kept[result.seed] = result
            if keep is not None:
                with keep.open("ab") as file:
                    file.write(msgspec.json.encode(result) + b"\n")
        yield kept.pop(seed)


def _live(seeds: list[int], seconds: float, workers: int) -> Iterator[ScenarioResult]:
    """Run these scenarios; yields results in the order in which they end."""
    run_one = partial(run_scenario, seconds=seconds)
    if workers == 1:
        yield from map(run_one, seeds)
        return
    # Scenarios must not depend on the state of this process: workers are not forked from it.
    with get_context("spawn").Pool(min(workers, len(seeds) or 1), _prepare_worker) as pool:
        yield from pool.imap_unordered(run_one, seeds)


def _prepare_worker() -> None:
    end_with_pool()
    prepare()


def prepare() -> None:
    """Prepare this process to run scenarios."""
    logging.disable(logging.CRITICAL)
    gc.freeze()  # exclude the program's own objects from collections
    gc.set_threshold(200_000, 20, 50)  # a scenario creates little garbage while it runs


def summary(results: Iterable[ScenarioResult]) -> str:
    """Summarise all scenarios in a few lines."""
    total: Counter[str] = Counter()
    whole = blake2b(digest_size=8)
    count, seconds, cpu_s = 0, 0.0, 0.0
    for result in results:
        total.update(result.counts)
        whole.update(result.trace.encode())
        count += 1
        seconds += result.seconds
        cpu_s += result.cpu_s
    hours = seconds / 3600
    seen = ", ".join(f"{number} {what}" for what, number in sorted(total.items()))
    trace = whole.hexdigest()
    return f"{count} scenarios, {hours:.3g} h in {cpu_s:.0f} CPU s: {seen}\ntrace {trace}\n"


def main() -> int:
    """Run simulated cluster scenarios; a seed reproduces its scenario."""
    parser = argparse.ArgumentParser(prog="mainstem sim", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=1, help="first seed")
    parser.add_argument("--hours", type=float, default=1.0, help="simulated hours to run")
    parser.add_argument(
        "--seconds", type=float, default=SCENARIO_S, help="simulated seconds per scenario"
    )
    parser.add_argument("--keep", type=Path, help="file of results, to resume a run")
    parser.add_argument("--workers", type=int, default=1, help="number of worker processes")
    parser.add_argument(
        "--end-with-stdin", action="store_true", help="exit when standard input is closed"
    )
    args = parser.parse_args()
    if args.end_with_stdin:
        end_with(sys.stdin.fileno())
    prepare()
    count = max(1, round(args.hours * 3600 / args.seconds))
    results: list[ScenarioResult] = []
    seeds = range(args.seed, args.seed + count)
    for result in run_scenarios(seeds, args.seconds, args.keep, max(1, args.workers)):
        results.append(result)
        outcome = result.violation or f"{result.counts['acknowledged']} acknowledged"
        sys.stdout.write(f"seed {result.seed} trace {result.trace} {outcome}\n")
        sys.stdout.flush()
    broken = [result for result in results if result.violation]
    sys.stdout.write(summary(results))
    sys.stdout.write(f"{len(broken)} violations; continue with --seed {args.seed + count}\n")
    for result in broken:
        sys.stdout.write(f"  seed {result.seed}: {result.violation}\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
