"""Every real client through the scenarios of ``make clients``, at volumes that take seconds.

The Python clients and kcat run every scenario; the clients that need a registry run those that
find most for their time. All volumes, and every scenario for everybody: ``make clients``.
"""

from pathlib import Path

import pytest
from tests.clients.client import CLIENTS
from tests.clients.scenarios import KIB, MIB, SCENARIOS, Scale, Scene
from tests.clients.tools import SCENARIOS as TOOLS

from mainstem.testing.local_node import LocalNode

PYTHON = ("confluent-kafka", "kafka-python", "aiokafka")
SMALL = Scale(
    messages=5_000,
    per_codec=500,
    sizes=(1, 64 * KIB, 10 * MIB),
    per_size=2,
    session_timeout_ms=6_000,
)
FULL_COUNT = Scale(messages=100_000)
RESTARTING = {"keeps_committed_offsets"}

CHOSEN = {
    **{name: [*SCENARIOS] for name in (*PYTHON, "kcat")},
    "kafkajs": [*SCENARIOS],
    "java": [
        "creates_a_topic",
        "passes_many_messages_once_each",
        "passes_every_codec",
        "seeks_into_a_batch_and_by_time",
        "keeps_every_field",
        "shares_partitions_and_takes_over",
    ],
    "console": ["creates_a_topic", "passes_many_messages_once_each", "keeps_every_field"],
}


def pairs(*, restarting: bool) -> list[object]:
    return [
        pytest.param(
            client,
            scenario,
            id=f"{client}-{scenario}",
            marks=[pytest.mark.needs(*CLIENTS[client].needs)],
        )
        for client, scenarios in CHOSEN.items()
        for scenario in scenarios
        if (scenario in RESTARTING) is restarting
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("client", "scenario"), pairs(restarting=False))
def test_a_real_client_takes_the_node_for_kafka(
    client: str, scenario: str, shared_node: LocalNode, tmp_path: Path
) -> None:
    hundred_thousand = client in PYTHON and scenario == "passes_many_messages_once_each"
    scale = FULL_COUNT if hundred_thousand else SMALL
    SCENARIOS[scenario](Scene(CLIENTS[client], shared_node, tmp_path, scale))


@pytest.mark.slow
@pytest.mark.parametrize(("client", "scenario"), pairs(restarting=True))
def test_a_real_client_goes_on_after_the_node_was_killed(
    client: str, scenario: str, fresh_node: LocalNode, tmp_path: Path
) -> None:
    SCENARIOS[scenario](Scene(CLIENTS[client], fresh_node, tmp_path, SMALL))


@pytest.mark.slow
@pytest.mark.needs("java", "maven")
@pytest.mark.parametrize("scenario", TOOLS)
def test_kafkas_own_tools_administer_the_node(
    scenario: str, shared_node: LocalNode, tmp_path: Path
) -> None:
    TOOLS[scenario](Scene(CLIENTS["java"], shared_node, tmp_path, SMALL))
