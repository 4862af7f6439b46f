"""``mainstem dev -n 3``: three nodes on fixed ports, lines to paste, and an end when asked."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.cli.test_dev import greeted

BIN = Path(sys.executable).parent
ELSEWHERE = [word for name in ("amqp", "mqtt", "native") for word in ("--set", f"{name}.port=0")]


def is_free(port: int) -> bool:
    with socket.socket() as tried:
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_run() -> int:
    """A port that begins a run of free ones, for Kafka, HTTP and other nodes."""
    for first in range(21_000, 30_000, 97):
        if all(is_free(first + gap + n) for gap in (0, 500, 1_000) for n in range(3)):
            return first
    raise AssertionError("no free ports")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    first = free_run()
    process = subprocess.Popen(
        [
            BIN / "mainstem", "dev", "-n", "3", "-d", tmp_path / "data",
            "--kafka-port", str(first), "--http-port", str(first + 500), *ELSEWHERE,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.timeout(120)
def test_three_nodes_come_up_and_their_lines_can_be_pasted(cluster: subprocess.Popen[str]) -> None:
    lines = greeted(cluster)
    commands = [line.strip() for line in lines if re.match(r"  \S*mainstem ", line)]
    outputs = [
        subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=60, check=True
        ).stdout
        for command in commands
    ]
    assert outputs[:3] == ["created greetings\n", "1 record written to greetings\n", "hello\n"]
    assert outputs[3].count(" live ") == 3
    cluster.send_signal(signal.SIGINT)
    assert cluster.wait(60) == 0
