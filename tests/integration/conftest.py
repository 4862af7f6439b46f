"""Real nodes for the tests: one that all share, and one that a test may stop or kill.

The shared node waits a tenth of a second instead of three for the first members of a group; in
everything else both run as a user would start them.
"""

from collections.abc import Iterator

import pytest

from mainstem.testing.local_node import LocalNode

QUICK_GROUPS = ("--set", "groups.initial_rebalance_delay_ms=100")


@pytest.fixture(scope="session")
def shared_node() -> Iterator[LocalNode]:
    """A node for tests that use topics and groups of their own and leave it running."""
    with LocalNode(arguments=QUICK_GROUPS) as node:
        yield node


@pytest.fixture
def fresh_node() -> Iterator[LocalNode]:
    """A node of the test's own, to be stopped, killed or filled."""
    with LocalNode(arguments=QUICK_GROUPS) as node:
        yield node
