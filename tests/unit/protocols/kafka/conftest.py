"""A client of the handlers of administration; modules about other handlers have their own."""

import pytest
from tests.unit.protocols.kafka.admin_kit import Client, new_client


@pytest.fixture
async def client() -> Client:
    return await new_client()
