"""The command lines of shards: ports apart, one machine, one cluster."""

from pathlib import Path

import pytest

from mainstem.model.errors import InvalidRequest
from mainstem.node.config.command_line import configuration, shards_of
from mainstem.node.shards import Shards, check_shards


def settings_of(command: list[str]) -> dict[str, str]:
    pairs = [word for word, before in zip(command[1:], command, strict=False) if before == "--set"]
    return dict(pair.split("=", 1) for pair in pairs)


def made(folder: Path, *arguments: str) -> Shards:
    given = ["--data-dir", str(folder), *arguments]
    return Shards(configuration(given, {}).config, 3, given)


def test_every_shard_has_its_own_number_folder_and_ports(tmp_path: Path) -> None:
    shards = made(tmp_path, "--node-id", "10", "--kafka-port", "9092", "--http-port", "8080")
    found = [settings_of(shards.command_of(number)) for number in range(3)]
    assert [each["node.id"] for each in found] == ["10", "11", "12"]
    assert [each["kafka.port"] for each in found] == ["9092", "9093", "9094"]
    assert [each["http.port"] for each in found] == ["8081", "8082", "8083"]
    assert {each["http.shared_port"] for each in found} == {"8080"}
    assert [each["cluster.peer_port"] for each in found] == ["10092", "10093", "10094"]
    assert [each["node.data_dir"] for each in found] == [
        str(tmp_path / f"shard-{number}") for number in range(3)
    ]
    assert len({each["cluster.machine"] for each in found}) == 1
    assert len({each["cluster.secret_file"] for each in found}) == 1


def test_free_ports_stay_free_and_a_cluster_that_is_there_is_joined(tmp_path: Path) -> None:
    shards = made(tmp_path, "--kafka-port", "0", "--http-port", "0", "--join", "other:9094")
    command = shards.command_of(1)
    found = settings_of(command)
    assert (found["kafka.port"], found["cluster.peer_port"]) == ("0", "0")
    assert (found["http.port"], found["http.shared_port"]) == ("0", "0")
    assert "cluster.join" not in found
    assert command[command.index("--join") + 1] == "other:9094"


def test_the_number_of_shards_is_taken_from_the_command_line() -> None:
    assert shards_of(["--shards", "4", "--kafka-port", "0"]) == (4, ["--kafka-port", "0"])
    assert shards_of(["--set", "kafka.port=0"]) == (1, ["--set", "kafka.port=0"])


@pytest.mark.parametrize("count", [0, -1, 65])
def test_a_number_that_cannot_be_run_is_refused(count: int) -> None:
    with pytest.raises(InvalidRequest):
        check_shards(count)
