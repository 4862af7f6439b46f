"""Faults of every kind in a cluster under the load of every protocol, and transactions."""

import pytest
from tests.chaos.cluster import fault_rounds
from tests.chaos.harsh import HarshCluster
from tests.chaos.one_of_several import OneOfSeveral
from tests.chaos.suite_parts import QUICK, all_faults, is_harsh
from tests.chaos.transactions import run_transactions
from tests.chaos.workload import SERVE_ALL

from mainstem.testing.local_cluster import LocalCluster

TRANSACTIONS = 100


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_faults_of_every_kind_lose_and_double_nothing() -> None:
    """Without root nobody can cut the network or the power: then nodes only die and hang."""
    faults = all_faults()
    kind = HarshCluster if is_harsh() else LocalCluster
    with kind(arguments=(*QUICK, *SERVE_ALL)) as cluster:
        run = fault_rounds(cluster, len(faults), faults=faults)
        assert not run.anomalies, f"{cluster.logs()}\n{run.done}\n{run.summary()}"
    assert set(run.done) == set(faults)
    assert run.histories.kafka.resumed, "the group must have resumed"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_transactions_over_several_nodes_survive_kills_pauses_and_zombies() -> None:
    with LocalCluster(arguments=QUICK) as cluster:
        cluster.wait_for_three_voters()
        run = run_transactions(OneOfSeveral(cluster, seed=2), TRANSACTIONS, seed=2)
        assert not run.anomalies, f"{cluster.logs()}\n{run.summary}"
    assert run.fenced_zombies, run.summary
