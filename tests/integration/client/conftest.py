"""The brokers that our own client has to get along with: a node, and Apache Kafka.

Each is started once in a process of tests, and stopped behind the last test of this folder.
"""

from contextlib import ExitStack
from pathlib import Path

import pytest
from bench.peers.kafka.peer import ApacheKafka
from bench.peers.maven import SHORT_LIVED
from tests.integration.several import node_under_test

HERE = Path(__file__).parent


class Brokers:
    """Those that run; a fixture with parameters would start both anew for every file."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._stack = ExitStack()

    def address(self, name: str) -> str:
        """Where the broker of that name listens; it is started unless it runs."""
        if name not in self._addresses:
            # Groups of a fresh node start at once; Kafka's peer keeps its default pause.
            quick = ("--set", "groups.initial_rebalance_delay_ms=0")
            wanted = kafka_peer() if name == "kafka" else node_under_test(quick)
            self._addresses[name] = self._stack.enter_context(wanted).kafka
        return self._addresses[name]

    def stop(self) -> None:
        """End them all."""
        self._addresses.clear()
        self._stack.close()


BROKERS = Brokers()


def kafka_peer() -> ApacheKafka:
    """Apache Kafka in a process that is made for a few small tests."""
    return ApacheKafka(jvm=("-Xmx512m", *SHORT_LIVED))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the brokers when no other test of this folder follows."""
    if nextitem is None or HERE not in nextitem.path.parents:
        BROKERS.stop()


@pytest.fixture
def kafka() -> str:
    """The address of Apache Kafka."""
    return BROKERS.address("kafka")


@pytest.fixture(
    params=[
        "mainstem",
        pytest.param("kafka", marks=pytest.mark.needs("java", "maven")),
    ],
)
def broker(request: pytest.FixtureRequest) -> str:
    """The address of a running broker."""
    name: str = request.param
    return BROKERS.address(name)
