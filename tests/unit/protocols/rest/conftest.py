"""The routes on top of a counter that lives in memory."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.protocols.rest.counter import Rest


@pytest.fixture
async def rest() -> AsyncIterator[Rest]:
    made = Rest()
    async with made.http:
        yield made
    made.counter.close()
