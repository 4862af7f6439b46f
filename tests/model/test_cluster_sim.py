"""Whole nodes under kills, cuts, damage, rolls and moves, in virtual time."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainstem.coordination.shards.persistence_driver import LiveShard
from mainstem.streams.ack_policy import AckPolicy
from mainstem.testing.simulation.cluster.resource_faults import FAULTS
from mainstem.testing.simulation.cluster.scenarios import (
    NOT_SIMULATED,
    SOURCE,
    ScenarioResult,
    run_scenarios,
    summary,
)
from mainstem.testing.simulation.cluster.simulator import run_seed


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_acknowledged_is_lost_under_faults(seed: int) -> None:
    sim = run_seed(seed, 30, policy="fsync" if seed % 2 else "written")

    assert len(sim.clients.acked) > 200
    assert sim.counts["transactions"] > 20
    assert sim.counts["positions"] > 20
    assert sim.counts["commands"] > 5
    assert sum(sim.counts[name] for name in FAULTS) >= 3


def test_scenarios_import_nothing_that_may_change_without_them() -> None:
    loading = "import sys, mainstem.testing.simulation.cluster.scenarios; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", loading], capture_output=True, check=True)

    packages = {
        name.split(".")[1]
        for name in loaded.stdout.decode().split()
        if name.startswith("mainstem.")
    }
    assert "streams" in packages
    assert packages.isdisjoint(NOT_SIMULATED)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_scenario_can_have_one_fault_only(fault: str) -> None:
    sim = run_seed(1, 5, faults=(fault,))

    assert not any(sim.counts[name] for name in FAULTS if name != fault)


def test_a_seed_gives_the_same_scenario_twice() -> None:
    first, second = run_seed(7, 15), run_seed(7, 15)

    assert first.clients.acked == second.clients.acked
    assert first.counts == second.counts


def test_the_command_prints_scenarios_and_where_to_continue(tmp_path: Path) -> None:
    first = output("--seed", "3", "--hours", "0.01", "--keep", str(tmp_path / "scenarios.jsonl"))

    assert re.search(r"seed 3 trace [0-9a-f]{16} \d+ acknowledged", first)
    assert "0 violations; continue with --seed 4" in first


def test_a_scenario_that_is_kept_is_not_run_again(tmp_path: Path) -> None:
    keep = tmp_path / "scenarios.jsonl"
    kept = ScenarioResult(SOURCE, 4, 60.0, "0123456789abcdef", 1.0, {"acknowledged": 42})
    of_another_program = msgspec.structs.replace(kept, source="", seed=3)
    keep.write_bytes(
        b"\n".join([msgspec.json.encode(kept), msgspec.json.encode(of_another_program), b""])
    )

    first, second = run_scenarios(range(3, 5), 60.0, keep)

    assert first.trace != kept.trace
    assert second == kept


def output(*words: str) -> str:
    """The output of the command."""
    command = [str(Path(sys.executable).with_name("mainstem")), "sim", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_violation_is_kept_with_its_seed_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AckPolicy, "committed", lambda _policy, ends: max(ends))
    keep = tmp_path / "scenarios.jsonl"

    found = list(run_scenarios(range(1, 9), 40, keep))

    broken = [scenario for scenario in found if scenario.violation]
    assert broken
    assert len(broken) < len(found) == 8
    lines = [
        msgspec.json.decode(line, type=ScenarioResult) for line in keep.read_bytes().splitlines()
    ]
    assert lines == found
    assert "8 scenarios, 0.0889 h" in summary(found)


def test_offsets_that_are_acknowledged_before_they_are_committed_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(live: LiveShard[Any, Any], *, has_stored: bool = True) -> None:
        """Treat stored facts as committed."""
        if not has_stored:
            live.check_fresh()

    monkeypatch.setattr(LiveShard, "safe", at_once)

    # The first of these seeds is known to notice it; a change of the product may shift that.
    assert any(scenario.violation for scenario in run_scenarios(range(14, 34), 60.0, None))


def test_the_same_seed_gives_the_same_trace_in_another_process(tmp_path: Path) -> None:
    first, second = (
        output("--seed", "5", "--hours", "0.01", "--keep", str(tmp_path / name)) for name in "ab"
    )

    assert re.findall("trace .*", first) == re.findall("trace .*", second)


def test_two_workers_run_the_same_scenarios_in_the_same_order(tmp_path: Path) -> None:
    keep = tmp_path / "scenarios.jsonl"

    alone = list(run_scenarios(range(5, 7), 5, None))
    shared = list(run_scenarios(range(5, 7), 5, keep, workers=2))

    assert [scenario.seed for scenario in shared] == [5, 6]
    assert [(scenario.trace, scenario.counts) for scenario in shared] == [
        (scenario.trace, scenario.counts) for scenario in alone
    ]
    lines = [
        msgspec.json.decode(line, type=ScenarioResult) for line in keep.read_bytes().splitlines()
    ]
    assert sorted(lines, key=lambda scenario: scenario.seed) == shared
