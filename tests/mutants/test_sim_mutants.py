"""Rules without which the simulation finds a violated guarantee."""

import subprocess
import sys
from pathlib import Path

from tests.mutants.run import stale
from tests.mutants.sim_mutants import SIM_MUTANTS

ROOT = Path(__file__).parents[2]


def test_the_texts_of_all_mutants_are_there() -> None:
    assert not [each.mutant.name for each in SIM_MUTANTS if stale(each.mutant)]


def test_a_write_that_is_cut_short_by_a_full_disk_is_noticed() -> None:
    command = [sys.executable, "tests/mutants/sim_mutants.py", "took in part"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert '"fault": "full disks"' in done.stdout
