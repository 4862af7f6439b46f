"""Three real nodes that form a cluster."""

from collections.abc import Iterator

import pytest

from mainstem.testing.local_cluster import LocalCluster

QUICK = ("--set", "groups.initial_rebalance_delay_ms=100", "--set", "groups.offsets_partitions=6")


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[LocalCluster]:
    """A cluster for tests that use topics and groups of their own and kill nobody."""
    with LocalCluster(arguments=QUICK) as cluster:
        yield cluster


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster whose nodes a test may kill."""
    with LocalCluster(arguments=QUICK) as own:
        own.wait_for_three_voters()
        yield own
