"""The command lines and the greeting of a local cluster."""

from pathlib import Path

import pytest

from mainstem.cli.development.cluster import (
    NODES_MAX,
    DevClusterSettings,
    command_of,
    greeting,
    peer_port_beside,
)
from mainstem.node.config.command_line import configuration

FOLDER = Path("/somewhere")


def test_nodes_have_ports_and_folders_of_their_own() -> None:
    wishes = DevClusterSettings(FOLDER, 9092, 8080, 19094, ())
    first, third = command_of(1, wishes, ""), command_of(3, wishes, "127.0.0.1:19094")
    one = configuration(first[3:], {}).config
    three = configuration(third[3:], {}).config
    assert (one.kafka.port, three.kafka.port) == (9092, 9094)
    assert (one.cluster.peer_port, three.cluster.peer_port) == (19094, 19096)
    assert one.cluster.join == ()
    assert three.cluster.join == ("127.0.0.1:19094",)
    assert one.cluster.machine != three.cluster.machine
    assert three.node.data_dir == "/somewhere/node-3"


def test_free_ports_stay_free() -> None:
    command = command_of(
        2, DevClusterSettings(FOLDER, 0, 0, 0, ("--set", "logs.level=debug")), "h:1"
    )
    settings = configuration(command[3:], {}).config
    assert (settings.kafka.port, settings.http.port, settings.cluster.peer_port) == (0, 0, 0)
    assert settings.logs.level == "debug"


@pytest.mark.parametrize("kafka_port", [9092, 19092, 7080, 64_500])
def test_ports_for_nodes_are_away_from_those_for_clients(kafka_port: int) -> None:
    peer_port = peer_port_beside(kafka_port, 8080)
    for port in (kafka_port, 8080):
        assert abs(peer_port - port) >= NODES_MAX


def test_the_greeting_names_every_node() -> None:
    nodes = [{"kafka": f"127.0.0.1:{n}", "http": f"127.0.0.1:{n + 10}", "pid": n} for n in (1, 2)]
    text = greeting(nodes, FOLDER)
    assert "a cluster of 2 nodes" in text
    assert "127.0.0.1:1,127.0.0.1:2" in text
    assert "kill -9 2" in text
