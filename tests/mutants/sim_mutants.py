"""Rules taken out of the product, and the fault by which the simulation notices each.

``python tests/mutants/sim_mutants.py [part of a name …]`` lives through stories that have only
that fault, one after the other, until a promise is broken. Prints one line of JSON for each.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.mutants.mutants import Mutant  # noqa: E402
from tests.mutants.run import _Changed, stale  # noqa: E402

SEEDS_MAX: Final = 12
STORY_S: Final = 60.0


class SimMutant(NamedTuple):
    """One rule, and what shows that it is missing."""

    mutant: Mutant
    fault: str


SIM_MUTANTS: Final = (
    SimMutant(
        Mutant(
            "a write that the disk took in part is taken for whole",
            "mainstem.log.segment",
            "                access.pwritev(file.fd, views, start) != total_bytes\n",
            "                not access.pwritev(file.fd, views, start)\n",
            "",
        ),
        "full disks",
    ),
    SimMutant(
        Mutant(
            "a round of compaction ends the node when there is no descriptor",
            "mainstem.streams.worker_driver",
            "(MainstemError, OSError, BrokenProcessPool)",
            "(MainstemError, BrokenProcessPool)",
            "",
        ),
        "descriptor shortages",
    ),
)


def attempt(wanted: SimMutant, seeds_max: int = SEEDS_MAX) -> int | None:
    """Tell stories against the mutant, in a child; the seed that noticed, None: it survived."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) or None
    seed = 0
    try:
        sys.meta_path.insert(0, _Changed(wanted.mutant))
        seed = _noticed(wanted.fault, seeds_max)
    finally:
        os._exit(seed)


def _noticed(fault: str, seeds_max: int) -> int:
    # Imported here, in the child, so that it meets the changed text.
    import logging  # noqa: PLC0415

    from mainstem.testing.cluster_sim import tell  # noqa: PLC0415

    logging.disable(logging.CRITICAL)
    for seed in range(1, seeds_max + 1):
        policy = "fsync" if seed % 2 else "written"
        try:
            tell(seed, STORY_S, policy=policy, faults=(fault,))
        except Exception:  # noqa: BLE001 - whatever it is, it is what was looked for
            return seed
    return 0


def main(wanted: list[str]) -> int:
    """Try every mutant whose name contains one of the words; how many survived."""
    survivors = 0
    for each in SIM_MUTANTS:
        if wanted and not any(word in each.mutant.name for word in wanted):
            continue
        begun = time.monotonic()
        seed = None if stale(each.mutant) else attempt(each)
        survivors += seed is None
        line = {
            "mutant": each.mutant.name,
            "fault": each.fault,
            "noticed by seed": seed,
            "seconds": round(time.monotonic() - begun, 1),
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
