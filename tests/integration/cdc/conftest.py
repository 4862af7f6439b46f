"""One PostgreSQL server and one Spark session for all tests of change data capture."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.integration.cdc.follow import Following
from tests.integration.cdc.postgres import PostgresServer
from tests.integration.pipelines.conftest import spark

from mainstem.pipelines.cdc.postgres.settings import PostgresCdcConfig

__all__ = ["spark"]


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A server that all tests share; each makes a database of its own."""
    with PostgresServer() as running:
        yield running


@pytest.fixture
def database(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own, without slots when the test ends."""
    name = "test_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:50].lower()
    with server.connect() as session:
        session.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())
        session.execute(f'CREATE DATABASE "{name}"'.encode())
    yield name
    Following.close_all()
    server.drop(name)


@pytest.fixture
def config(server: PostgresServer, database: str) -> PostgresCdcConfig:
    name = database[:60]
    return PostgresCdcConfig(host="127.0.0.1", port=server.port, database=database, slot_name=name)


@pytest.fixture
def run(server: PostgresServer, database: str) -> Callable[..., list[tuple[Any, ...]]]:
    def execute(*statements: str) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        with server.connect(database) as session:
            for statement in statements:
                cursor = session.execute(statement.encode())
                found = cursor.fetchall() if cursor.description else []
        return found

    return execute
