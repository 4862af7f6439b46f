"""The long chaos suite of pipelines: kill after kill, in parts, each one judged.

Parts that passed are remembered until all have, so that an interrupted run goes on where it
stopped; ``--fresh`` begins again. Every part has servers, snapshots and points of its own: its seed
says which.
"""

import argparse
import signal
import sys
from functools import partial
from pathlib import Path

from tests.chaos.parts import Part, Verdict, run_parts, say
from tests.chaos_pipelines.rounds import run_kills

STATE = Path(__file__).parents[2] / ".cache" / "chaos" / "pipelines.json"
KILLS_PER_PART = 5


def main() -> int:
    options = _options()
    # Servers must be cleaned up when the suite is told to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return run_parts(parts(options.kills, options.seed), STATE, fresh=options.fresh, say=say)


def parts(kills: int, seed: int) -> dict[str, Part]:
    """What the suite consists of, in order."""
    made: dict[str, Part] = {}
    for number in range(-(-kills // KILLS_PER_PART)):
        count = min(KILLS_PER_PART, kills - number * KILLS_PER_PART)
        made[f"{count} kills, seed {seed + number}"] = partial(_kill, count, seed + number)
    return made


def _kill(kills: int, seed: int) -> Verdict:
    outcome = run_kills(kills, seed, say)
    return not outcome.anomalies, "\n  ".join([str(outcome), *outcome.anomalies])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how often to kill everything")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fresh", action="store_true", help="forget what has passed before")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
