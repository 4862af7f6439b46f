"""Real nodes for the tests: one that all share, and one that a test may stop or kill.

The shared node waits a tenth of a second instead of three for the first members of a group; in
everything else both run as a user would start them. With ``MAINSTEM_TEST_NODES=3`` the shared node
is one of three, and what the tests ask for may be on any of them.
"""

import os
from collections.abc import Iterator

import pytest

from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode

QUICK_GROUPS = ("--set", "groups.initial_rebalance_delay_ms=100")


@pytest.fixture(scope="session")
def shared_node() -> Iterator[LocalNode]:
    """A node for tests that use topics and groups of their own and leave it running."""
    count = int(os.environ.get("MAINSTEM_TEST_NODES", "1"))
    if count > 1:
        with LocalCluster(count, arguments=QUICK_GROUPS) as cluster:
            yield cluster.nodes[1]
        return
    with LocalNode(arguments=QUICK_GROUPS) as node:
        yield node


@pytest.fixture
def fresh_node() -> Iterator[LocalNode]:
    """A node of the test's own, to be stopped, killed or filled."""
    with LocalNode(arguments=QUICK_GROUPS) as node:
        yield node
