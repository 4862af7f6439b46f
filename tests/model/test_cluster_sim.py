"""Whole nodes under kills, cuts, damage, rolls and moves, in virtual time."""

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from mainstem.coordination.shard_runtime import LiveShard
from mainstem.streams.ack_policy import AckPolicy
from mainstem.testing.cluster_sim import tell
from mainstem.testing.cluster_sim_faults import FAULTS
from mainstem.testing.cluster_sim_stories import SOURCE, Story, stories, summary


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_acknowledged_is_lost_in_a_hostile_world(seed: int) -> None:
    sim = tell(seed, 30, policy="fsync" if seed % 2 else "written")

    assert len(sim.clients.acked) > 10
    assert sim.counts["transactions"] > 0
    assert sim.counts["positions"] > 0
    assert sim.counts["commands"] > 0
    assert sum(sim.counts[name] for name in FAULTS) > 5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_story_can_have_one_fault_only(fault: str) -> None:
    sim = tell(1, 5, faults=(fault,))

    assert not any(sim.counts[name] for name in FAULTS if name != fault)


def test_a_seed_tells_the_same_story_twice() -> None:
    first, second = tell(7, 15), tell(7, 15)

    assert first.clients.acked == second.clients.acked
    assert first.counts == second.counts


def test_the_command_tells_stories_and_where_to_go_on(tmp_path: Path) -> None:
    first = told("--seed", "3", "--hours", "0.01", "--keep", str(tmp_path / "stories.jsonl"))

    assert re.search(r"seed 3 trace [0-9a-f]{16} \d+ acknowledged", first)
    assert "0 violations; go on with --seed 4" in first


def test_a_story_that_is_kept_is_not_told_again(tmp_path: Path) -> None:
    keep = tmp_path / "stories.jsonl"
    kept = Story(SOURCE, 4, 60.0, "0123456789abcdef", 1.0, {"acknowledged": 42})
    of_another_program = msgspec.structs.replace(kept, source="", seed=3)
    keep.write_bytes(
        b"\n".join([msgspec.json.encode(kept), msgspec.json.encode(of_another_program), b""])
    )

    first, second = stories(range(3, 5), 60.0, keep)

    assert first.trace != kept.trace
    assert second == kept


def told(*words: str) -> str:
    """What the command prints."""
    command = [str(Path(sys.executable).with_name("mainstem")), "sim", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_broken_promise_is_kept_with_its_seed_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AckPolicy, "committed", lambda _policy, ends: max(ends))
    keep = tmp_path / "stories.jsonl"

    found = list(stories(range(1, 9), 40, keep))

    broken = [story for story in found if story.violation]
    assert broken
    assert len(broken) < len(found) == 8
    lines = [msgspec.json.decode(line, type=Story) for line in keep.read_bytes().splitlines()]
    assert lines == found
    assert "8 stories, 0.0889 h" in summary(found)


def test_positions_that_are_acknowledged_before_they_are_safe_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(_live: object) -> None:
        """What was stored is taken for safe."""

    monkeypatch.setattr(LiveShard, "safe", at_once)

    assert any(story.violation for story in stories(range(1, 13), 60.0, None))


def test_the_same_seed_gives_the_same_trace_in_another_process(tmp_path: Path) -> None:
    first, second = (
        told("--seed", "5", "--hours", "0.01", "--keep", str(tmp_path / name)) for name in "ab"
    )

    assert re.findall("trace .*", first) == re.findall("trace .*", second)
