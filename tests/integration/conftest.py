"""Real nodes for the tests: one that all share, and one that a test may stop or kill.

The shared node waits a tenth of a second instead of three for the first members of a group, and as
some tests write records of long ago it does not look for expired ones while they last; in
everything else both run as a user would start them. With ``MAINSTEM_TEST_NODES=3`` the shared node
is one of three (see ``several``).
"""

from collections.abc import Iterator

import pytest
from tests.integration.several import NODES, node_under_test

from mainstem.testing.local_node import LocalNode

QUICK_GROUPS = ("--set", "groups.initial_rebalance_delay_ms=100")
NOTHING_EXPIRES = ("--set", "log.retention_check_interval_ms=86400000")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is about a node by itself when there are several."""
    for item in items:
        marker = item.get_closest_marker("lone")
        if marker is not None and NODES > 1:
            item.add_marker(pytest.mark.skip(reason=f"a node by itself: {marker.args[0]}"))


@pytest.fixture(scope="session")
def shared_node() -> Iterator[LocalNode]:
    """A node for tests that use topics and groups of their own and leave it running."""
    with node_under_test((*QUICK_GROUPS, *NOTHING_EXPIRES)) as node:
        yield node


@pytest.fixture
def fresh_node() -> Iterator[LocalNode]:
    """A node of the test's own, to be stopped, killed or filled."""
    with LocalNode(arguments=QUICK_GROUPS) as node:
        yield node
