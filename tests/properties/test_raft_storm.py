"""A whole Raft group of real drivers and files keeps its promises in bad weather."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.simulation.raft.fault_run import run_with_faults

SECONDS = 120.0


@pytest.fixture
def folder() -> Iterator[Path]:
    memory = Path("/dev/shm")
    made = Path(
        tempfile.mkdtemp(prefix="raft-run_with_faults-", dir=memory if memory.is_dir() else None)
    )
    logging.disable(logging.CRITICAL)  # crashes are the point here
    yield made
    logging.disable(logging.NOTSET)
    shutil.rmtree(made)


@pytest.mark.parametrize("seed", range(8))
def test_nothing_that_was_answered_is_lost_in_a_storm(folder: Path, seed: int) -> None:
    tally = run_with_faults(folder, seed, seconds=SECONDS, nodes=5 if seed % 3 == 0 else 3)
    assert tally.acknowledged > 10
    assert tally.crashes > 5
    assert tally.stalls > 2
    assert tally.full_disks + tally.failed_syncs > 2


@pytest.mark.parametrize("seed", range(102, 108))
def test_nothing_is_lost_while_nodes_join_and_leave_in_a_storm(folder: Path, seed: int) -> None:
    # Four times as long: a group that has shrunk to two voters is often without a leader.
    tally = run_with_faults(folder, seed, seconds=4 * SECONDS, nodes=3, spare=2)
    assert tally.acknowledged > 10
    assert tally.changes > 2


@pytest.mark.parametrize("seed", range(200, 206))
def test_nothing_is_lost_when_nodes_notice_or_imagine_that_a_leader_is_gone(
    folder: Path, seed: int
) -> None:
    tally = run_with_faults(folder, seed, seconds=SECONDS, nodes=5 if seed % 2 else 3, notice=0.7)
    assert tally.acknowledged > 10
    assert tally.crashes > 5


def test_a_seed_brings_a_storm_back(folder: Path) -> None:
    first = run_with_faults(folder / "first", 99, seconds=30.0, spare=1)
    second = run_with_faults(folder / "second", 99, seconds=30.0, spare=1)
    assert first.digest == second.digest
