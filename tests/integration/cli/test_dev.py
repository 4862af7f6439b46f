"""``mainstem dev``: what it prints can be pasted, and it stops when asked."""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainstem.cli.commands.dev import greeting

BIN = Path(sys.executable).parent


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [BIN / "mainstem", "dev", "--kafka-port", "0", "--http-port", "0", "-d", tmp_path / "data"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    yield process
    process.kill()
    process.communicate()


def greeted(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    while not lines or not lines[-1].startswith("Ctrl-C"):
        line = process.stdout.readline()
        assert line, process.communicate()
        lines.append(line.rstrip("\n"))
    return lines


def test_the_printed_lines_work_in_another_shell(dev: subprocess.Popen[str]) -> None:
    commands = [line.strip() for line in greeted(dev) if re.match(r"  \S*mainstem ", line)]
    outputs = [
        subprocess.run(
            shlex.split(command), capture_output=True, text=True, timeout=30, check=True
        ).stdout
        for command in commands
    ]
    assert outputs == ["1 record written to greetings\n", "hello\n"]


def test_a_node_that_asks_for_a_login_prints_lines_with_one() -> None:
    addresses = {
        "kafka": "127.0.0.1:9093",
        "kafka_listeners": ["SASL_SSL://127.0.0.1:9093", "PLAINTEXT://127.0.0.1:9092"],
        "http": "127.0.0.1:8080",
    }
    text = greeting(addresses, "data", scheme="https")
    assert "SASL_SSL://127.0.0.1:9093\n" in text
    assert "PLAINTEXT://127.0.0.1:9092\n" in text
    assert "https://127.0.0.1:8080" in text
    assert "topic list -b 127.0.0.1:9093 --user NAME --ca-file FILE" in text
    assert "kcat" not in text


def test_an_interrupt_stops_the_node_in_good_order(dev: subprocess.Popen[str]) -> None:
    greeted(dev)
    dev.send_signal(signal.SIGINT)
    _, errors = dev.communicate(timeout=30)
    assert dev.returncode == 0, errors
    assert "Traceback" not in errors


def test_the_greeting_names_every_address() -> None:
    text = greeting({"kafka": "127.0.0.1:9092", "http": "127.0.0.1:8080"}, "data")
    assert "kcat -b 127.0.0.1:9092" in text
    assert "curl http://127.0.0.1:8080/v1/topics" in text
    assert '"bootstrap.servers": "127.0.0.1:9092"' in text
    assert str(Path("data").absolute()) in text
    assert " -b 127.0.0.1:9092\n" not in text


def test_without_http_nothing_is_said_about_it() -> None:
    assert "http" not in greeting({"kafka": "127.0.0.1:1"}, "data")
