"""A node that asks who is there, shared by the tests of this folder."""

from collections.abc import Iterator

import pytest
from tests.integration.security.kit import SecureNode


@pytest.fixture(scope="session")
def secure_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """One listener of each kind; tests use topics, groups and users of their own."""
    with SecureNode(tmp_path_factory.mktemp("secure")) as node:
        yield node
