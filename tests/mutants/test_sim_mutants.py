"""Rules without which the simulation finds a violated guarantee."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutants.run import stale
from tests.mutants.sim_mutants import SIM_MUTANTS, SimMutant

ROOT = Path(__file__).parents[2]


def test_the_texts_of_all_mutants_are_there() -> None:
    assert not [each.mutant.name for each in SIM_MUTANTS if stale(each.mutant)]


@pytest.mark.parametrize("wanted", SIM_MUTANTS, ids=lambda each: each.mutant.name)
def test_the_simulation_notices_a_removed_rule(wanted: SimMutant) -> None:
    command = [sys.executable, "tests/mutants/sim_mutants.py", "--known", wanted.mutant.name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f'"fault": "{wanted.fault}"' in done.stdout
