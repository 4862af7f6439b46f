import pytest
from tests.chaos.cluster import fault_rounds
from tests.chaos.kill9 import summary

from mainstem.testing.local_cluster import LocalCluster

QUICK_GROUPS = (
    "--set", "groups.initial_rebalance_delay_ms=100", "--set", "groups.offsets_partitions=6",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_twenty_faults_of_single_nodes_lose_and_double_nothing() -> None:
    with LocalCluster(arguments=QUICK_GROUPS) as cluster:
        history, anomalies, done = fault_rounds(cluster, 20)
        assert not anomalies, f"{done}\n{summary(history, anomalies)}\n{cluster.logs()}"
    assert len(done) == 3
    assert history.resumed, "the group must have resumed"
