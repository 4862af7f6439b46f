"""Real clients through scenarios of ``make clients`` on three nodes; ``make cluster`` runs more."""

from pathlib import Path

import pytest
from tests.clients.client import CLIENTS
from tests.clients.scenarios import SCENARIOS, Scale, Scene

from mainstem.testing.local_cluster import LocalCluster

SMALL = Scale(
    messages=2_000, per_codec=200, sizes=(1, 65_536), per_size=2, session_timeout_ms=6_000
)
CHOSEN = ["passes_every_codec", "keeps_every_field", "shares_partitions_and_takes_over"]


@pytest.mark.slow
@pytest.mark.parametrize("scenario", CHOSEN)
@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python", "aiokafka"])
def test_a_real_client_takes_three_nodes_for_kafka(
    client: str, scenario: str, shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    SCENARIOS[scenario](Scene(CLIENTS[client], shared_cluster.nodes[1], tmp_path, SMALL))
