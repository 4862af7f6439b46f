"""Runs episodes of Raft cores and fault runs of Raft groups for a given CPU time.

Episodes take any order of ticks, losses, writes and crashes; fault runs use real drivers and files
under virtual time. A seed that fails is printed with the violation, and reproduces it.
"""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.kit.simulation.raft.core_episodes import episode
from tests.kit.simulation.raft.fault_run import FaultRunCounts, run_with_faults

STEPS = 2_000
STORM_S = 600.0
EPISODES_PER_STORM = 100


def main() -> int:
    """Run until the time is up; 1 when a guarantee was violated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU seconds to run")
    parser.add_argument("--seed", type=int, default=10_000, help="first seed")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    total, episodes, committed, terms = FaultRunCounts(), 0, 0, 0
    seed = options.seed
    until = time.process_time() + options.seconds
    while time.process_time() < until:
        try:
            for number in range(EPISODES_PER_STORM):
                outcome = episode(seed * EPISODES_PER_STORM + number, STEPS)
                episodes += 1
                committed += outcome.committed
                terms += outcome.terms
            _add(total, _one_storm(seed))
        except AssertionError as error:
            print(f"seed {seed}: {error}", flush=True)
            return 1
        seed += 1
    print(f"{episodes} episodes of {STEPS} steps: {committed} entries, {terms} terms with a leader")
    print(
        f"{total.simulated_s / 3600:.1f} hours of fault runs: {total.acknowledged} acknowledged, "
        f"{total.reads} reads, {total.crashes} crashes ({total.power_losses} with power loss), "
        f"{total.partitions} partitions, {total.stalls} stalled disks, "
        f"{total.full_disks} full disks, {total.failed_syncs} failed syncs, "
        f"{total.failed_reads} times of failed reads, "
        f"{total.descriptor_shortages} descriptor shortages, "
        f"{total.refused_starts} refused starts, {total.slow_links} slow links, "
        f"{total.one_way_cuts} one-way cuts, {total.pauses} pauses, "
        f"{total.clock_jumps} clock jumps, {total.oversize} oversize entries, "
        f"{total.unknown} unknown outcomes, {total.retried} retried proposals, "
        f"{total.releases} changes of release, {total.changes} membership changes, "
        f"{total.terms} terms, {total.messages} messages"
    )
    print(f"no violations; continue with --seed {seed}")
    return 0


def _one_storm(seed: int) -> FaultRunCounts:
    memory = Path("/dev/shm")  # noqa: S108 - syncs cost nothing there
    folder = Path(tempfile.mkdtemp(prefix="raft-sim-", dir=memory if memory.is_dir() else None))
    try:
        spare = 2 if seed % 2 else 0
        return run_with_faults(
            folder, seed, seconds=STORM_S, nodes=5 if seed % 3 == 0 else 3, spare=spare
        )
    finally:
        shutil.rmtree(folder)


def _add(total: FaultRunCounts, more: FaultRunCounts) -> None:
    for name in more.__struct_fields__:
        if name != "digest":
            setattr(total, name, getattr(total, name) + getattr(more, name))


if __name__ == "__main__":
    sys.exit(main())
