"""One node that must survive everything in this folder."""

from collections.abc import Iterator

import pytest
from tests.integration.bad_input.wire import Witness

from mainstem.testing.local_node import LocalNode


@pytest.fixture(scope="module")
def node() -> Iterator[LocalNode]:
    with LocalNode() as made:
        pid = made.pid
        yield made
        assert made.pid == pid
        assert "Traceback" not in made.log_text(), made.log_tail()
        assert made.stop() == 0


@pytest.fixture(scope="module")
def watched(node: LocalNode) -> Iterator[Witness]:
    made = Witness(node)
    yield made
    made.close()


@pytest.fixture
def witness(watched: Witness) -> Iterator[Witness]:
    """Nobody else is disturbed: checked before and after every test."""
    watched.check()
    yield watched
    watched.check()
