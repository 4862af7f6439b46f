"""The benchmark's own parts, on volumes that prove nothing about speed."""

import pytest
from bench.measure import costs, cpu_s, family, rss_bytes
from bench.sides import SIDES
from bench.table import render
from bench.workloads import GOALS, Volume, at_rest, fsync_gain, large, single

from mainstem.testing.local_node import LocalNode

TINY = Volume(batched=1, large=5, single=200, lone=20, latency=1, synced=200, through=1)


@pytest.mark.parametrize("key", ["written", "synced"])
def test_the_bare_loads_run_and_give_figures(key: str, shared_node: LocalNode) -> None:
    side = SIDES[key](shared_node)
    figures = large(side, TINY) | single(side, TINY) | fsync_gain(side, TINY)
    assert set(figures) <= set(GOALS)
    assert all(figure.value > 0 for figure in figures.values())


def test_a_server_at_rest_is_measured(shared_node: LocalNode) -> None:
    figures = at_rest(SIDES["written"](shared_node), 0.1)
    assert figures["ready"].value > 0
    assert figures["rss_start"].value > 1


def test_the_processor_time_of_a_server_grows_with_its_work(shared_node: LocalNode) -> None:
    before = cpu_s(shared_node.pid)
    with costs(shared_node.pid) as cost:
        single(SIDES["written"](shared_node), TINY)
    assert cpu_s(shared_node.pid) > before
    assert cost.cpu_s > 0
    assert cost.rss_max_bytes >= rss_bytes(shared_node.pid) // 2
    assert shared_node.pid in family(shared_node.pid)


def test_a_table_row_names_durability_ratio_and_target() -> None:
    def figures(*values: float) -> list[dict[str, object]]:
        return [{"value": value, "beside": {"rate": 1_000.0}} for value in values]

    kept = {
        "produce_100b": {
            "mainstem (page cache)": figures(90.0, 100.0, 300.0),
            "mainstem (fsync)": figures(150.0),
            "kafka (page cache)": figures(400.0),
        },
        "fsync_gain": {"mainstem (fsync)": figures(20.0)},
    }
    table = render(kept, GOALS)
    rows = table.splitlines()[2:]
    assert "| mainstem (page cache) | 100 | 90 |" in rows[0]
    assert "| 4.0x | ≤ 180 met |" in rows[0]
    assert rows[1].endswith("| 2.7x |  |")
    assert rows[2].endswith("|  |  |")
    assert rows[3].endswith("≥ 30 **missed** |")
