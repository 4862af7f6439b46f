"""The brokers that our own client has to get along with: a node, and Apache Kafka."""

from collections.abc import Iterator

import pytest
from bench.peers.kafka.peer import ApacheKafka
from tests.integration.several import node_under_test


@pytest.fixture(
    scope="session",
    params=[
        "mainstem",
        pytest.param("kafka", marks=pytest.mark.needs("java", "maven")),
    ],
)
def broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a running broker."""
    # Groups of a fresh node start at once; Kafka's peer keeps its default pause.
    quick = ("--set", "groups.initial_rebalance_delay_ms=0")
    with ApacheKafka() if request.param == "kafka" else node_under_test(quick) as running:
        yield running.kafka
