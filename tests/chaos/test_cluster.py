"""Faults of every kind in a cluster under the load of every protocol, and transactions."""

import os
import shutil

import pytest
from tests.chaos.cluster import fault_rounds
from tests.chaos.faults import DISK_FAULTS, FAULTS, MEMBER_FAULTS, NETWORK_FAULTS, POWER_FAULTS
from tests.chaos.harsh import HarshCluster
from tests.chaos.one_of_several import OneOfSeveral
from tests.chaos.transactions import run_transactions
from tests.chaos.workload import SERVE_ALL

from mainstem.testing.local_cluster import LocalCluster

QUICK_GROUPS = (
    "--set", "groups.initial_rebalance_delay_ms=100", "--set", "groups.offsets_partitions=6",
)  # fmt: skip
IS_HARSH = os.geteuid() == 0 and shutil.which("ip") is not None
TRANSACTIONS = 100


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_faults_of_every_kind_lose_and_double_nothing() -> None:
    """Without root nobody can cut the network or the power: then nodes only die and hang."""
    harsh = NETWORK_FAULTS | POWER_FAULTS | DISK_FAULTS
    faults = FAULTS | MEMBER_FAULTS | (harsh if IS_HARSH else {})
    kind = HarshCluster if IS_HARSH else LocalCluster
    with kind(arguments=(*QUICK_GROUPS, *SERVE_ALL)) as cluster:
        run = fault_rounds(cluster, len(faults), faults=faults)
        assert not run.anomalies, f"{cluster.logs()}\n{run.done}\n{run.summary()}"
    assert set(run.done) == set(faults)
    assert run.histories.kafka.resumed, "the group must have resumed"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_transactions_over_several_nodes_survive_kills_pauses_and_zombies() -> None:
    with LocalCluster(arguments=QUICK_GROUPS) as cluster:
        cluster.wait_for_three_voters()
        run = run_transactions(OneOfSeveral(cluster, seed=2), TRANSACTIONS, seed=2)
        assert not run.anomalies, f"{cluster.logs()}\n{run.summary}"
    assert run.fenced_zombies, run.summary
