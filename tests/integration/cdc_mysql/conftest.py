"""One MariaDB server and one Spark session for all tests of its change data capture."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from tests.integration.cdc.follow import Following
from tests.integration.cdc_mysql.mariadb import GIVEN_PORT, GivenServer, MariadbServer
from tests.integration.pipelines.conftest import spark

from mainstem.pipelines.cdc.mysql.settings import MysqlCdcConfig

__all__ = ["spark"]


@pytest.fixture(scope="session")
def server() -> Iterator[MariadbServer]:
    """A server that all tests share; each makes a database of its own."""
    with GivenServer() if GIVEN_PORT else MariadbServer() as running:
        yield running


@pytest.fixture
def database(server: MariadbServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database of the test's own."""
    name = "test_" + "".join(c if c.isalnum() else "_" for c in request.node.name)[:50].lower()
    server.run(
        f"DROP DATABASE IF EXISTS `{name}`", f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4"
    )
    yield name
    Following.close_all()
    server.run(f"DROP DATABASE `{name}`")


@pytest.fixture
def config(server: MariadbServer, database: str) -> MysqlCdcConfig:
    return MysqlCdcConfig(host="127.0.0.1", port=server.port, database=database)


@pytest.fixture
def run(server: MariadbServer, database: str) -> Callable[..., tuple[tuple[Any, ...], ...]]:
    return partial(server.run, database=database)
