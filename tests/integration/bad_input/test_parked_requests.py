"""Frames behind a request that waits stay in their sockets, not in the node's memory."""

import contextlib
import os
from collections.abc import Iterator

import pytest
from tests.integration.bad_input.wire import Witness
from tests.kit.attacks import ParkedFrames, resident_bytes

from mainstem.model.limits import MIB
from mainstem.testing.local_node import LocalNode

CONNECTIONS = 100
FRAME_BYTES = 8 * MIB
FRAMES_EACH = 2
# A hundred connections with half a megabyte each, and what else a node's memory varies by. Without
# a bound it would be 1,600 MiB.
GROWTH_BYTES_MAX = 100 * MIB


@pytest.fixture
def node() -> Iterator[LocalNode]:
    with LocalNode() as made:
        yield made
        assert "Traceback" not in made.log_text(), made.log_tail()
        assert made.stop() == 0


def test_frames_behind_requests_that_wait_do_not_fill_the_memory(node: LocalNode) -> None:
    with contextlib.closing(Witness(node)) as witness:
        witness.check()
        before = resident_bytes(node)
        with ParkedFrames(node.kafka, CONNECTIONS, os.urandom(FRAME_BYTES), FRAMES_EACH) as parked:
            parked.wait_until_stuck()
            witness.check()
            assert resident_bytes(node) - before < GROWTH_BYTES_MAX
            assert max(parked.sent) < FRAME_BYTES  # the rest never left the clients
