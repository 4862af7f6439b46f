"""Replicated streams under kills, cuts, rolls and moves, in virtual time."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.streams.ack_policy import AckPolicy
from mainstem.testing.cluster_sim import tell
from mainstem.testing.cluster_sim_clients import Offended


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_acknowledged_is_lost_in_a_hostile_world(seed: int) -> None:
    sim = tell(seed, 30, policy="fsync" if seed % 2 else "written")

    assert len(sim.clients.acked) > 100


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = tell(7, 15), tell(7, 15)

    assert first.clients.acked == second.clients.acked
    assert first.counts == second.counts


def test_a_writer_that_waits_for_nobody_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AckPolicy, "committed", lambda _policy, ends: max(ends))

    with pytest.raises(Offended):
        _tell_all(range(1, 13))


def _tell_all(seeds: range) -> None:
    for seed in seeds:
        tell(seed, 40, policy="fsync" if seed % 2 else "written")


def test_the_command_tells_stories_and_where_to_go_on() -> None:
    told = subprocess.run(
        [str(Path(sys.executable).with_name("mainstem")), "sim", "--seed", "3", "--hours", "0.01"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert re.search(r"seed 3 trace [0-9a-f]{16} \d+ acknowledged", told)
    assert "go on with --seed 4" in told
