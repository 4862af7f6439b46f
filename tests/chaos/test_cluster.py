"""Faults of single nodes in a cluster under load, twenty in all."""

import pytest
from tests.chaos.cluster import NETWORK_FAULTS, POWER_FAULTS, fault_rounds
from tests.chaos.kill9 import summary
from tests.chaos.network import NetworkCluster
from tests.chaos.one_of_several import OneOfSeveral
from tests.chaos.powered import PoweredCluster
from tests.chaos.transactions import run_transactions

from mainstem.testing.local_cluster import LocalCluster

QUICK_GROUPS = (
    "--set", "groups.initial_rebalance_delay_ms=100", "--set", "groups.offsets_partitions=6",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_pauses_and_restarts_of_single_nodes_lose_and_double_nothing() -> None:
    with LocalCluster(arguments=QUICK_GROUPS) as cluster:
        history, anomalies, done = fault_rounds(cluster, 11)
        assert not anomalies, f"{done}\n{summary(history, anomalies)}\n{cluster.logs()}"
    assert len(done) == 3
    assert history.resumed, "the group must have resumed"


@pytest.mark.slow
@pytest.mark.needs("network")
@pytest.mark.timeout(600)
def test_nodes_cut_off_from_the_others_lose_and_double_nothing() -> None:
    with NetworkCluster(arguments=QUICK_GROUPS) as cluster:
        history, anomalies, _ = fault_rounds(cluster, 6, faults=NETWORK_FAULTS)
        assert not anomalies, f"{summary(history, anomalies)}\n{cluster.logs()}"


@pytest.mark.slow
@pytest.mark.needs("root")
@pytest.mark.timeout(600)
def test_power_lost_by_one_node_or_by_all_takes_nothing_that_was_acknowledged() -> None:
    with PoweredCluster(arguments=QUICK_GROUPS) as cluster:
        history, anomalies, done = fault_rounds(cluster, 3, seed=1, faults=POWER_FAULTS)
        assert not anomalies, f"{summary(history, anomalies)}\n{cluster.logs()}"
    assert len(done) == 2


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_transactions_over_several_nodes_survive_kills_pauses_and_zombies() -> None:
    with LocalCluster() as cluster:
        run = run_transactions(OneOfSeveral(cluster, seed=2), 300, seed=2)
        assert not run.anomalies, f"{run.summary}\n{cluster.logs()}"
    assert run.fenced_zombies, run.summary
