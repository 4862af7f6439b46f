"""Every mutant on the list is noticed by the test that the list names."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutants.mutants import MUTANTS

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_no_mutant_survives() -> None:
    done = subprocess.run(
        [sys.executable, "tests/mutants/run.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(MUTANTS), done.stderr
    assert not [result for result in results if not result["killed"]]


def test_the_killers_pass_without_a_mutant() -> None:
    """Otherwise every mutant would seem to be killed; the suite runs them without mutants."""
    for mutant in MUTANTS:
        path, _, name = mutant.killer.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name}(" in (ROOT / path).read_text()
