"""The switch that lets the same client tests run against one node or against three.

``MAINSTEM_TEST_NODES=3`` makes every node that tests share the first of three, with three copies of
the topics that name no number of their own; what the tests ask for may then be on any of them.
Tests that are about a node alone are marked ``lone``, with the reason, and left out then.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mainstem.testing.local_cluster import LocalCluster
from mainstem.testing.local_node import LocalNode

NODES = int(os.environ.get("MAINSTEM_TEST_NODES", "1"))


@contextmanager
def node_under_test(arguments: Sequence[str] = ()) -> Iterator[LocalNode]:
    """A node by itself, or the first of several."""
    if NODES == 1:
        with LocalNode(arguments=arguments) as node:
            yield node
        return
    with LocalCluster(NODES, arguments=arguments) as cluster:
        cluster.wait_for_three_voters()
        yield cluster.nodes[1]
