"""What a node does with its configuration, seen from outside."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mainstem.client.cluster import Cluster
from mainstem.client.values import NodeInfo
from mainstem.testing.local_node import LocalNode


def nodes_told_to(bootstrap: str) -> tuple[NodeInfo, ...]:
    async def ask() -> tuple[NodeInfo, ...]:
        async with Cluster(bootstrap) as cluster:
            await cluster.all_topics()
            return cluster.info.nodes

    return asyncio.run(ask())


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts a node that is expected to refuse."""
    return subprocess.run(
        [sys.executable, "-m", "mainstem.node", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_clients_are_told_the_address_they_dialled() -> None:
    with LocalNode(arguments=["--insecure", "--kafka-host", "0.0.0.0"]) as node:
        port = int(node.kafka.rpartition(":")[2])
        for host in ("127.0.0.1", "127.0.0.2"):
            [told] = nodes_told_to(f"{host}:{port}")
            assert (told.host, told.port) == (host, port)


def test_clients_are_told_the_address_that_the_operator_chose() -> None:
    arguments = ["--set", "kafka.advertised_host=broker.example", "--set", "node.rack=r1"]
    with LocalNode(arguments=arguments) as node:
        [told] = nodes_told_to(node.kafka)
        port = int(node.kafka.rpartition(":")[2])
        assert (told.host, told.port, told.rack) == ("broker.example", port, "r1")


def test_an_open_address_is_refused_without_the_insecure_flag(tmp_path: Path) -> None:
    done = start("--data-dir", str(tmp_path / "data"), "--kafka-host", "0.0.0.0")
    assert done.returncode == 2
    assert "--insecure" in done.stderr
    assert not (tmp_path / "data").exists()


def test_a_misspelt_setting_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    done = start("--data-dir", str(tmp_path / "data"), "--set", "kafka.prt=1")
    assert done.returncode == 2
    assert "kafka.port" in done.stderr
    assert not (tmp_path / "data").exists()


def test_two_nodes_never_share_a_folder() -> None:
    with LocalNode() as node:
        done = start("--data-dir", str(node.data_dir), "--kafka-port", "0", "--http-port", "0")
        assert done.returncode == 1
        assert "another process owns" in done.stderr


def test_a_port_in_use_is_an_error_that_names_it(tmp_path: Path) -> None:
    with LocalNode() as node:
        port = node.kafka.rpartition(":")[2]
        done = start("--data-dir", str(tmp_path / "d"), "--kafka-port", port, "--http-port", "0")
    assert done.returncode == 1
    assert port in done.stderr
    assert "Traceback" not in done.stderr


def test_without_http_there_is_no_http_address() -> None:
    with LocalNode(arguments=["--set", "http.enabled=false"]) as node:
        ready = next(line for line in node.log_text().splitlines() if line.startswith("READY"))
        assert "http" not in json.loads(ready.removeprefix("READY "))


@pytest.mark.parametrize("preset", ["local", "single"])
def test_log_lines_of_a_node_are_json_where_nobody_looks(preset: str) -> None:
    with LocalNode(arguments=["--preset", preset]) as node:
        assert node.stop() == 0
        lines = [line for line in node.log_text().splitlines() if not line.startswith("READY")]
    assert lines
    assert all(
        {"time", "level", "component", "message"} <= json.loads(line).keys() for line in lines
    )
